// What the Models panel shows of a snapshot, without any drawing.

import { parent, leaf } from '../../pure/paths.js';

export interface IRow {
  readonly name: string;
  readonly version: string;
  readonly state: string;
  readonly folder: string;
  readonly scratch: boolean;
  readonly error: string;
  readonly unlearned: boolean;
  readonly reason: string;
}

export interface IGroup<T extends IRow> {
  readonly key: string;
  readonly title: string;
  readonly path: string;
  readonly rows: readonly T[];
}

/** The models by the repository they lie in, as named by `repositories`; cells' models first. */
export function groups<T extends IRow>(
  models: readonly T[],
  repositories: readonly string[],
  filter = ''
): IGroup<T>[] {
  const wanted = filter.trim().toLowerCase();
  const found = new Map<string, T[]>();
  for (const model of models) {
    if (wanted && !model.name.toLowerCase().includes(wanted)) {
      continue;
    }
    const key = model.scratch ? '' : model.folder ? parent(model.folder) : '?';
    found.set(key, [...(found.get(key) ?? []), model]);
  }
  const order = ['', ...repositories];
  const place = (key: string) => (order.includes(key) ? order.indexOf(key) : order.length);
  return [...found]
    .sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b))
    .map(([key, rows]) => ({
      key,
      title: key === '' ? 'Notebook cells' : key === '?' ? 'Elsewhere' : leaf(key),
      path: key === '?' ? '' : key,
      rows: rows.sort((a, b) => a.name.localeCompare(b.name) || a.version.localeCompare(b.version))
    }));
}

export type Light = 'good' | 'busy' | 'warn' | 'bad' | 'off';

/** The colour of a model's light. */
export function light(model: IRow): Light {
  if (model.state === 'READY') {
    return model.error || model.unlearned ? 'warn' : 'good';
  }
  if (model.state === 'LOADING' || model.state === 'UNLOADING') {
    return 'busy';
  }
  return model.error ? 'bad' : 'off';
}

/** The colour of an instance's light. */
export function instanceLight(state: string): Light {
  const lights: { [state: string]: Light } = {
    ready: 'good',
    busy: 'busy',
    starting: 'busy',
    restarting: 'warn',
    debugging: 'warn',
    dead: 'bad'
  };
  return lights[state] ?? 'off';
}

/** What a row adds in one line: why the model is not served, or not as it is written. */
export function remark(model: IRow): string {
  if (model.state === 'READY' && model.error) {
    const lines = model.error.trim().split('\n');
    return `older version serves: ${lines[lines.length - 1]}`;
  }
  if (model.unlearned) {
    return 'waits for a first request to take its config from';
  }
  return model.state === 'READY' ? '' : model.reason.trim().split('\n')[0];
}

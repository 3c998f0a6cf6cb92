// The Models panel in the left side bar, and the commands on a model.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import { IStateDB } from '@jupyterlab/statedb';
import { Debouncer } from '@lumino/polling';

import { modelsIcon } from '../../icons';
import type { IModel } from '../../messages';
import { CATEGORY, IDevkit } from '../../tokens';
import { IKept, ModelsPanel } from './panel';

const ID = 'triton-devkit:models';

/** The commands on a model: name, label, and what it does once there is one. */
function actions(devkit: IDevkit) {
  const call = (method: string, model: IModel, what: string, body?: unknown) =>
    devkit.connection.call(method, `v1/models/${encodeURIComponent(model.name)}/${what}`, body);
  const ready = (model: IModel) => model.state === 'READY';
  const scale = (model: IModel, by: number) =>
    call('POST', model, 'scale', { count: Math.max(1, model.instances.length + by) });
  return [
    {
      id: 'devkit:load', label: 'Load Model', fits: (model: IModel) => !ready(model),
      run: (model: IModel) => call('POST', model, 'load', {})
    },
    {
      id: 'devkit:unload', label: 'Unload Model', fits: ready,
      run: (model: IModel) => call('POST', model, 'unload', {})
    },
    {
      id: 'devkit:reload', label: 'Reload Model', fits: ready,
      run: (model: IModel) => call('POST', model, 'reload')
    },
    {
      id: 'devkit:scale-up', label: 'Add an Instance',
      fits: (model: IModel) => ready(model) && model.instances.length > 0,
      run: (model: IModel) => scale(model, 1)
    },
    {
      id: 'devkit:scale-down', label: 'Remove an Instance',
      fits: (model: IModel) => ready(model) && model.instances.length > 1,
      run: (model: IModel) => scale(model, -1)
    },
    {
      id: 'devkit:open-source', label: 'Open Source of Model', fits: (model: IModel) => !!model.file,
      run: (model: IModel) => devkit.openSource(model.file)
    },
    {
      id: 'devkit:open-config', label: 'Open config.pbtxt of Model',
      fits: (model: IModel) => !!model.folder,
      run: (model: IModel) => devkit.openSource(`${model.folder}/config.pbtxt`)
    }
  ];
}

/** The model a command is about; asks where neither arguments nor focus say. */
async function choose(
  devkit: IDevkit,
  args: { readonly [name: string]: unknown },
  title: string,
  fits: (model: IModel) => boolean
): Promise<IModel | undefined> {
  const target = devkit.target(args);
  if (target) {
    return devkit.store.model(target.model, target.version);
  }
  const names = [...new Set(devkit.store.models.filter(fits).map(one => one.name))];
  const picked = await InputDialog.getItem({ title, items: names });
  return picked.value ? devkit.store.model(picked.value) : undefined;
}

export const models: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'The models of the runtime, in the left side bar.',
  autoStart: true,
  requires: [IDevkit],
  optional: [ICommandPalette, ILayoutRestorer, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    devkit: IDevkit,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    state: IStateDB | null
  ) => {
    let kept: IKept | null = null;
    const saver = new Debouncer(() => kept && state?.save(ID, { ...kept } as any), 500);
    const panel = new ModelsPanel(devkit, 2, news => {
      kept = news;
      void saver.invoke();
    });
    panel.id = 'devkit-models';
    panel.title.icon = modelsIcon;
    panel.title.caption = 'Models (Triton devkit)';
    void state?.fetch(ID).then(found => found && panel.restore(found as unknown as IKept));
    app.shell.add(panel, 'left', { rank: 350, type: 'Models' });
    restorer?.add(panel, panel.id);

    app.commands.addCommand('devkit:show-models', {
      label: 'Show Models',
      execute: () => app.shell.activateById(panel.id)
    });
    palette?.addItem({ command: 'devkit:show-models', category: CATEGORY });
    for (const { id, label, fits, run } of actions(devkit)) {
      app.commands.addCommand(id, {
        label,
        isEnabled: args => {
          if (!devkit.store.running) {
            return false;
          }
          const target = devkit.target(args);
          const model = target && devkit.store.model(target.model, target.version);
          return model ? fits(model) : devkit.store.models.some(fits);
        },
        execute: async args => {
          const model = await choose(devkit, args, label, fits);
          if (!model) {
            return;
          }
          try {
            await run(model);
          } catch (problem) {
            devkit.fail(problem);
          }
          devkit.store.refresh();
        }
      });
      palette?.addItem({ command: id, category: CATEGORY });
      app.contextMenu.addItem({ command: id, selector: '.dk-Models [data-dk-model]', rank: 1 });
    }
  }
};

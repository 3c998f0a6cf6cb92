// The Models panel: what is served, how it fares, and what can be done with it.

import { refreshIcon, addIcon, caretRightIcon, caretDownIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ICaptureInfo, IInstance, IModel } from '../../messages';
import { Panel } from '../../panel';
import { bytes, duration, rate, shape, count } from '../../pure/format';
import { quantile } from '../../pure/rates';
import { IAction, IDevkit } from '../../tokens';
import { groups, instanceLight, light, remark } from './view';

const LATENCIES = 500;

/** What the panel remembers from one start of JupyterLab to the next. */
export interface IKept {
  readonly open: readonly string[];
  readonly closed: readonly string[];
  readonly filter: string;
}

export class ModelsPanel extends Panel {
  private _open = new Set<string>();
  private _closed = new Set<string>();
  private _filter = '';
  private _quantiles = new Map<string, [number | null, number | null]>();
  private _asking = 0;
  private _redraw = () => this.update();

  constructor(
    devkit: IDevkit,
    seconds: number,
    private readonly keep: (kept: IKept) => void
  ) {
    super(devkit, seconds);
    this.addClass('dk-Models');
    devkit.actionsChanged.connect(this._redraw);
  }

  restore(kept: Partial<IKept>): void {
    this._open = new Set(kept.open ?? []);
    this._closed = new Set(kept.closed ?? []);
    this._filter = kept.filter ?? '';
    this.update();
  }

  dispose(): void {
    this.devkit.actionsChanged.disconnect(this._redraw);
    super.dispose();
  }

  protected shown(): void {
    this._asking = window.setInterval(() => void this._measure(), 3000);
    void this._measure();
  }

  protected hidden(): void {
    window.clearInterval(this._asking);
  }

  protected body(): React.ReactNode {
    const { store, commands } = this.devkit;
    const snapshot = store.snapshot;
    const runtime = store.status.runtime;
    const shown = groups(store.models, runtime?.repositories ?? [], this._filter);
    const total = store.models.filter(one => one.state === 'READY').length;
    return (
      <>
        <div className="dk-Models-bar">
          <input
            className="jp-mod-styled dk-Filter"
            type="search"
            placeholder="Filter models"
            aria-label="Filter models"
            value={this._filter}
            onChange={event => this._set(() => (this._filter = event.target.value))}
          />
          {commands.hasCommand('devkit:new-model') ? (
            <Button
              icon={addIcon}
              title="New model…"
              run={() => commands.execute('devkit:new-model')}
            />
          ) : null}
          <Button icon={refreshIcon} title="Refresh" run={() => store.refresh()} />
        </div>
        <div className="dk-Models-summary dk-dim">
          {snapshot
            ? `${total} of ${store.models.length} ready${
                runtime ? ` · ${runtime.endpoints.map(one => `${one.protocol} ${one.port}`).join(' · ')}` : ''
              }`
            : 'Reading…'}
        </div>
        <div
          className="dk-Models-tree"
          role="tree"
          aria-label="Models"
          onKeyDown={event => this._key(event)}
        >
          {shown.map(group => (
            <div key={group.key} role="group" aria-label={group.title}>
              <div className="dk-Models-group" title={group.path}>
                {group.title} <span className="dk-dim">{group.rows.length}</span>
              </div>
              {group.rows.map(model => this._model(model))}
            </div>
          ))}
          {snapshot && !shown.length ? (
            <div className="dk-Empty">
              {this._filter ? 'No model has such a name.' : 'The repositories hold no model yet.'}
            </div>
          ) : null}
        </div>
      </>
    );
  }

  private _model(model: IModel): JSX.Element {
    const key = `${model.name}/${model.version}`;
    const open = this._open.has(key);
    const { store } = this.devkit;
    const now = store.rate(model);
    const failures = model.failures;
    const text = remark(model);
    return (
      <div key={key} className="dk-Model">
        <div
          className="dk-Row dk-Model-row"
          role="treeitem"
          tabIndex={0}
          aria-expanded={open}
          aria-label={`${model.name} ${model.state || 'not loaded'}`}
          data-dk-model={model.name}
          data-dk-version={model.version}
          data-dk-key={key}
          onClick={() => this._toggle(key)}
        >
          {open ? <caretDownIcon.react tag="span" /> : <caretRightIcon.react tag="span" />}
          <Dot light={light(model)} title={model.state || 'not loaded'} />
          <span className="dk-Row-name" title={model.folder}>
            {model.name}
            {model.version && model.version !== '1' ? <span className="dk-dim"> v{model.version}</span> : null}
          </span>
          {failures ? (
            <span className="dk-Badge dk-bad" title={`${failures} requests failed`}>
              {count(failures)}
            </span>
          ) : null}
          {model.warnings.length ? (
            <span
              className="dk-Badge dk-warn"
              title={model.warnings.map(one => one.text).join('\n')}
            >
              {model.warnings.length}
            </span>
          ) : null}
          <span className="dk-Number" title="requests per second">
            {model.state === 'READY' ? `${rate(now.requests)}/s` : (model.state || 'unloaded').toLowerCase()}
          </span>
        </div>
        {text && !open ? (
          <div className="dk-Remark" title={text}>
            {text}
          </div>
        ) : null}
        {open ? this._details(model, text) : null}
      </div>
    );
  }

  private _details(model: IModel, text: string): JSX.Element {
    const { store } = this.devkit;
    const now = store.rate(model);
    const ready = model.state === 'READY';
    const [p50, p99] = this._quantiles.get(model.name) ?? [null, null];
    const most = Math.max(1, ...model.instances.map(one => memory(one)));
    return (
      <div className="dk-Details" data-dk-model={model.name} data-dk-version={model.version}>
        <div className="dk-Actions">
          <Act label={ready ? 'Unload' : 'Load'} command={ready ? 'devkit:unload' : 'devkit:load'} {...this._to(model)} />
          {ready ? (
            <>
              <Act label="Reload" command="devkit:reload" {...this._to(model)} />
              {model.instances.length ? (
                <span className="dk-Scale" title="instances">
                  <Act label="−" name="One instance less" command="devkit:scale-down" {...this._to(model)} />
                  <span>{model.instances.length}</span>
                  <Act label="+" name="One instance more" command="devkit:scale-up" {...this._to(model)} />
                </span>
              ) : null}
              <Act label="Request…" command="devkit:request" {...this._to(model)} />
            </>
          ) : null}
          <Act label="Logs" command="devkit:logs" {...this._to(model)} />
          {model.file ? <Act label="Source" command="devkit:open-source" {...this._to(model)} /> : null}
          {this.devkit.actions
            .filter(one => one.on !== 'instance')
            .map(one => (
              <More key={one.command} action={one} {...this._to(model)} />
            ))}
        </div>
        {text ? <div className="dk-Remark">{text}</div> : null}
        {model.error ? <pre className="dk-Problem">{model.error.trim()}</pre> : null}
        {ready ? (
          <dl className="dk-Facts">
            <dt>now</dt>
            <dd>
              {rate(now.requests)} requests/s, mean {duration(now.seconds)}
              {p50 === null ? null : ` · last requests p50 ${duration(p50)}, p99 ${duration(p99)}`}
            </dd>
            <dt>in all</dt>
            <dd>
              {count(model.inferences)} inferences, {count(model.executions)} executions
              {model.failures ? <span className="dk-bad">, {count(model.failures)} failed</span> : null}
              {model.pending ? `, ${model.pending} waiting` : null}
            </dd>
            {model.inputs.map(one => (
              <React.Fragment key={one.name}>
                <dt>in</dt>
                <dd>
                  {one.name} <span className="dk-dim">{one.datatype} {shape(one.shape)}{one.optional ? ' optional' : ''}</span>
                </dd>
              </React.Fragment>
            ))}
            {model.outputs.map(one => (
              <React.Fragment key={one.name}>
                <dt>out</dt>
                <dd>
                  {one.name} <span className="dk-dim">{one.datatype} {shape(one.shape)}</span>
                </dd>
              </React.Fragment>
            ))}
          </dl>
        ) : null}
        {model.warnings.map(one => (
          <div key={one.rule + one.line} className="dk-Warning" title={one.rule}>
            {one.text} {one.count > 1 ? `(${one.count}×)` : ''}
          </div>
        ))}
        <div role="group">{model.instances.map(one => this._instance(model, one, most))}</div>
      </div>
    );
  }

  private _instance(model: IModel, one: IInstance, most: number): JSX.Element {
    const now = this.devkit.store.rate(one);
    const used = memory(one);
    return (
      <div key={one.name} className="dk-Instance">
        <div
          className="dk-Row dk-Instance-row"
          role="treeitem"
          tabIndex={0}
          aria-label={`${one.name} ${one.state}`}
          data-dk-model={model.name}
          data-dk-version={model.version}
          data-dk-instance={one.name}
        >
          <Dot light={instanceLight(one.state)} title={one.state} />
          <span className="dk-Row-name" title={one.name}>
            {one.name}
          </span>
          <span className="dk-Number">{rate(now.requests)}/s</span>
          <span className="dk-Number dk-dim">{duration(now.seconds)}</span>
        </div>
        <div className="dk-Instance-facts dk-dim">
          <span>{one.state}</span>
          <span>pid {one.pid}</span>
          <span>
            {one.kind}
            {one.kind === 'GPU' ? ` ${one.device}` : ''}
          </span>
          {one.process ? <span>{Math.round(one.process.cpu_percent)} %</span> : null}
          {one.work?.failed ? <span className="dk-bad">{count(one.work.failed)} failed</span> : null}
          {one.restarts ? <span className="dk-warn">{one.restarts} restarts</span> : null}
          {this.devkit.actions
            .filter(each => each.on !== 'model')
            .map(each => (
              <More key={each.command} action={each} {...this._to(model, one.name)} />
            ))}
        </div>
        {used > 0 ? (
          <div className="dk-Bar" title={processText(one)}>
            <span style={{ width: `${(100 * used) / most}%` }} />
            <em>{bytes(used)}</em>
          </div>
        ) : null}
        {one.last_words ? <pre className="dk-Problem">{one.last_words.trim()}</pre> : null}
      </div>
    );
  }

  private _to(model: IModel, instance?: string) {
    return {
      devkit: this.devkit,
      to: { model: model.name, version: model.version, ...(instance ? { instance } : {}) }
    };
  }

  private _set(change: () => void): void {
    change();
    this.keep({ open: [...this._open], closed: [...this._closed], filter: this._filter });
    this.update();
  }

  private _toggle(key: string): void {
    this._set(() => {
      if (!this._open.delete(key)) {
        this._open.add(key);
        void this._measure();
      }
    });
  }

  private _key(event: React.KeyboardEvent): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>('[role=treeitem]');
    if (!row || row !== event.target) {
      return;
    }
    const rows = [...this.node.querySelectorAll<HTMLElement>('[role=treeitem]')];
    const at = rows.indexOf(row);
    const key = row.dataset.dkKey;
    const step: { [key: string]: number } = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in step) {
      rows[at + step[event.key]]?.focus();
    } else if (event.key === 'Home') {
      rows[0]?.focus();
    } else if (event.key === 'End') {
      rows[rows.length - 1]?.focus();
    } else if (key && (event.key === 'Enter' || event.key === ' ')) {
      this._toggle(key);
    } else if (key && event.key === 'ArrowRight' && !this._open.has(key)) {
      this._toggle(key);
    } else if (key && event.key === 'ArrowLeft' && this._open.has(key)) {
      this._toggle(key);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** The quantiles of the recorded requests, for models that are open. */
  private async _measure(): Promise<void> {
    if (document.hidden || !this.devkit.store.running) {
      return;
    }
    const names = new Set([...this._open].map(key => key.slice(0, key.lastIndexOf('/'))));
    for (const model of names) {
      try {
        const rows = await this.devkit.connection.call<ICaptureInfo[]>(
          'GET',
          'v1/captures',
          undefined,
          { model, last: LATENCIES }
        );
        const seconds = rows.filter(one => !one.error).map(one => one.seconds);
        this._quantiles.set(model, [quantile(seconds, 0.5), quantile(seconds, 0.99)]);
      } catch {
        this._quantiles.delete(model); // the runtime is going: the status says so
      }
    }
    if (names.size && !this.isDisposed) {
      this.update();
    }
  }
}

function memory(one: IInstance): number {
  const process = one.process;
  return process ? Math.max(process.pss, process.rss, 0) : 0;
}

function processText(one: IInstance): string {
  const process = one.process;
  return process
    ? `RSS ${bytes(process.rss)}, PSS ${bytes(process.pss)}, USS ${bytes(process.uss)}${
        process.gpu >= 0 ? `, GPU ${bytes(process.gpu)}` : ''
      }; ${process.threads} threads, ${process.open_files} open files`
    : '';
}

export function Dot({ light, title }: { light: string; title: string }): JSX.Element {
  return <span className={`dk-Dot dk-${light}`} title={title} role="img" aria-label={title} />;
}

interface IActProps {
  readonly devkit: IDevkit;
  readonly to: { readonly [name: string]: string };
}

function Act(
  props: IActProps & { label: string; command: string; name?: string }
): JSX.Element | null {
  const { devkit, to, label, command, name } = props;
  if (!devkit.commands.hasCommand(command)) {
    return null; // the panel that brings it is switched off
  }
  return (
    <button
      className="dk-Act"
      title={name ?? devkit.commands.caption(command, to)}
      aria-label={name}
      disabled={!devkit.commands.isEnabled(command, to)}
      onClick={event => {
        event.stopPropagation();
        void devkit.commands.execute(command, to);
      }}
    >
      {label}
    </button>
  );
}

function More({ action, devkit, to }: IActProps & { action: IAction }): JSX.Element {
  return (
    <Act
      devkit={devkit}
      to={to}
      command={action.command}
      label={devkit.commands.label(action.command, to)}
    />
  );
}

export function Button(props: {
  icon: { react: React.ElementType };
  title: string;
  run: () => unknown;
}): JSX.Element {
  const Icon = props.icon.react;
  return (
    <button className="dk-Icon jp-Button jp-mod-minimal" title={props.title} aria-label={props.title} onClick={() => void props.run()}>
      <Icon tag="span" />
    </button>
  );
}

// The base of every panel: drawn by React from the store, again when the store has news, and only
// while it is seen.

import { ReactWidget } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { sentence } from './connection';
import { IDevkit } from './tokens';

export abstract class Panel extends ReactWidget {
  private _watching: IDisposable | null = null;

  /**
   * @param devkit - the core.
   * @param seconds - how often the panel wants a new picture while it is seen; 0 for never.
   */
  constructor(
    protected readonly devkit: IDevkit,
    private readonly seconds = 2
  ) {
    super();
    this.addClass('dk-Panel');
  }

  /** What the panel shows while a runtime runs. */
  protected abstract body(): React.ReactNode;

  /** Whether the body is shown although no runtime runs: what it holds is still worth reading. */
  protected get outlives(): boolean {
    return false;
  }

  /** Called when the panel begins to be seen. */
  protected shown(): void {
    /* for those who need it */
  }

  /** Called when it is not seen any more. */
  protected hidden(): void {
    /* for those who need it */
  }

  render(): JSX.Element {
    return (
      <>
        <Away devkit={this.devkit} />
        {this.devkit.store.running || this.outlives ? this.body() : null}
      </>
    );
  }

  dispose(): void {
    this._look(false);
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._look(true);
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._look(this.isVisible);
  }

  protected onBeforeDetach(message: Message): void {
    this._look(false);
    super.onBeforeDetach(message);
  }

  protected onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._look(false);
  }

  private _look(seen: boolean): void {
    if (seen === (this._watching !== null)) {
      return;
    }
    if (seen) {
      const { store } = this.devkit;
      const redraw = () => this.update();
      store.changed.connect(redraw);
      const wants = this.seconds ? store.want(this.seconds) : null;
      this._watching = {
        get isDisposed() {
          return false;
        },
        dispose: () => {
          store.changed.disconnect(redraw);
          wants?.dispose();
        }
      };
      this.shown();
      this.update();
    } else {
      this._watching?.dispose();
      this._watching = null;
      this.hidden();
    }
  }
}

/** Why there is nothing to see, and the way out; nothing at all while a runtime runs. */
export function Away({ devkit }: { devkit: IDevkit }): JSX.Element | null {
  const { status } = devkit.store;
  if (status.state === 'running') {
    return null;
  }
  if (status.state === 'connecting') {
    return <div className="dk-Away">Looking for the runtime…</div>;
  }
  if (status.state === 'offline') {
    return (
      <div className="dk-Away" role="status">
        <b>The Jupyter server does not answer.</b>
        <span>This comes back by itself when it does.</span>
      </div>
    );
  }
  const starting = status.state === 'starting';
  return (
    <div className="dk-Away" role="status">
      <b>{starting ? 'The runtime starts…' : 'No runtime is running.'}</b>
      {status.text ? <pre>{status.text}</pre> : null}
      <span className="dk-dim" title={status.workspace}>
        {status.workspace}
      </span>
      <button
        className="jp-mod-styled jp-mod-accept"
        disabled={starting}
        onClick={() => void devkit.commands.execute('devkit:start')}
      >
        {starting ? 'Starting' : 'Start the runtime'}
      </button>
    </div>
  );
}

/** An error in a panel: what happened, and what to do next. */
export function Problem({ of }: { of: unknown }): JSX.Element | null {
  return of ? (
    <pre className="dk-Problem" role="alert">
      {sentence(of)}
    </pre>
  ) : null;
}

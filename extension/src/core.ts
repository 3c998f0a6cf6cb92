// Makes the one store and the one connection of this tab, and the commands that no panel owns.

import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { FileEditor } from '@jupyterlab/fileeditor';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';

import { Connection, sentence } from './connection';
import { below } from './pure/paths';
import { Store } from './store';
import { CATEGORY, IAction, IDevkit, ITarget } from './tokens';

class Devkit implements IDevkit {
  readonly connection: Connection;
  readonly store: Store;
  private _actions: IAction[] = [];
  private _actionsChanged = new Signal<IDevkit, void>(this);

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly documents: IDocumentManager
  ) {
    this.connection = new Connection(app.serviceManager.serverSettings);
    this.store = new Store(this.connection);
  }

  get commands() {
    return this.app.commands;
  }

  get actions(): readonly IAction[] {
    return this._actions;
  }

  get actionsChanged(): ISignal<IDevkit, void> {
    return this._actionsChanged;
  }

  addAction(action: IAction): void {
    this._actions = [...this._actions, action].sort((a, b) => a.rank - b.rank);
    this._actionsChanged.emit();
  }

  async openSource(path: string, line?: number): Promise<void> {
    const inside = below(this.store.status.root, path);
    if (inside === null) {
      Notification.warning(
        `${path} lies outside the folder that JupyterLab shows (${this.store.status.root}).`,
        { autoClose: 8000 }
      );
      return;
    }
    const widget = this.documents.openOrReveal(inside);
    if (!widget) {
      this.fail(new Error(`${inside} cannot be opened`));
      return;
    }
    await widget.revealed;
    if (line && widget.content instanceof FileEditor) {
      const editor = widget.content.editor;
      editor.setCursorPosition({ line: line - 1, column: 0 });
      editor.revealPosition({ line: line - 1, column: 0 });
      editor.focus();
    }
  }

  target(args: { readonly [name: string]: unknown }): ITarget | null {
    const named = args.model ?? args.instance;
    if (typeof named === 'string' && named) {
      return {
        model: String(args.model ?? ''),
        version: args.version ? String(args.version) : undefined,
        instance: args.instance ? String(args.instance) : undefined
      };
    }
    const clicked = this.app.contextMenuHitTest(node => 'dkModel' in node.dataset);
    const focused = document.activeElement?.closest<HTMLElement>('[data-dk-model]');
    const data = (clicked ?? focused)?.dataset;
    return data?.dkModel
      ? { model: data.dkModel, version: data.dkVersion, instance: data.dkInstance }
      : null;
  }

  fail(problem: unknown): void {
    Notification.error(sentence(problem), { autoClose: 15000 });
  }
}

export const core: JupyterFrontEndPlugin<IDevkit> = {
  id: 'triton-devkit:core',
  description: 'The connection to the runtime of this workspace.',
  autoStart: true,
  provides: IDevkit,
  requires: [IDocumentManager],
  optional: [ICommandPalette, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    documents: IDocumentManager,
    palette: ICommandPalette | null,
    settings: ISettingRegistry | null
  ): IDevkit => {
    const devkit = new Devkit(app, documents);
    let repositories: string[] = [];
    void settings?.load(core.id).then(loaded => {
      const read = () => {
        repositories = loaded.get('repositories').composite as string[];
      };
      loaded.changed.connect(read);
      read();
    });
    app.commands.addCommand('devkit:start', {
      label: 'Start the Runtime',
      caption: 'Start the runtime of this workspace',
      isEnabled: () => ['none', 'failed'].includes(devkit.store.status.state),
      execute: () => devkit.store.start(repositories).catch(problem => devkit.fail(problem))
    });
    app.commands.addCommand('devkit:stop', {
      label: 'Stop the Runtime',
      caption: 'End the runtime of this workspace and every model in it',
      isEnabled: () => devkit.store.running,
      execute: () =>
        devkit.connection
          .call('POST', 'v1/shutdown')
          .catch(problem => devkit.fail(problem))
    });
    for (const command of ['devkit:start', 'devkit:stop']) {
      palette?.addItem({ command, category: CATEGORY });
    }
    devkit.store.statusChanged.connect(() => {
      app.commands.notifyCommandChanged('devkit:start');
      app.commands.notifyCommandChanged('devkit:stop');
    });
    devkit.connection.open();
    return devkit;
  }
};

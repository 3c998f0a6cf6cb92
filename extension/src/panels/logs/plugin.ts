// The Logs panel below the main area, and the command that opens it on a model or an instance.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { listIcon } from '@jupyterlab/ui-components';

import { CATEGORY, IDevkit } from '../../tokens';
import { LogsPanel } from './panel';

const COMMAND = 'devkit:logs';

export const logs: JupyterFrontEndPlugin<void> = {
  id: 'triton-devkit:logs',
  description: 'What the models and the runtime print.',
  autoStart: true,
  requires: [IDevkit],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    devkit: IDevkit,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const tracker = new WidgetTracker<LogsPanel>({ namespace: 'devkit-logs' });
    let panel: LogsPanel | null = null;
    app.commands.addCommand(COMMAND, {
      label: args => (args.instance || args.model ? 'Logs' : 'Show Logs'),
      caption: 'What a model, an instance or all of them print',
      execute: args => {
        const target = devkit.target(args) ?? { model: '' };
        if (!panel || panel.isDisposed) {
          panel = new LogsPanel(devkit, one => void tracker.save(one));
          panel.id = 'devkit-logs';
          panel.title.icon = listIcon;
          panel.title.caption = 'Logs (Triton devkit)';
          panel.title.closable = true;
          void tracker.add(panel);
        }
        if (!panel.isAttached) {
          app.shell.add(panel, 'main', { mode: 'split-bottom', type: 'Logs' });
        }
        const filter = typeof args.filter === 'string' ? args.filter : undefined;
        panel.select(target, filter);
        app.shell.activateById(panel.id);
      }
    });
    palette?.addItem({ command: COMMAND, category: CATEGORY });
    app.contextMenu.addItem({
      command: COMMAND,
      selector: '.dk-Models [data-dk-model]',
      rank: 2
    });
    devkit.addAction({ command: COMMAND, on: 'instance', rank: 10 });
    void restorer?.restore(tracker, {
      command: COMMAND,
      args: one => ({ ...one.selected }),
      name: () => 'logs'
    });
  }
};

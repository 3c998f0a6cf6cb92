// What a panel of this extension gets: the store, the way to the runtime, and the places where
// panels meet (actions on a model, opening a source file). Provided once, by `core`.

import { Token } from '@lumino/coreutils';
import type { CommandRegistry } from '@lumino/commands';
import type { ISignal } from '@lumino/signaling';

import type { Connection } from './connection';
import type { Store } from './store';

/** A model, or one of its instances, that a command is about. */
export interface ITarget {
  readonly model: string;
  readonly version?: string;
  readonly instance?: string;
}

/** A button that a panel puts beside every model or instance in the Models panel. */
export interface IAction {
  /** A command; it is run with the ITarget as its arguments. */
  readonly command: string;
  readonly on: 'model' | 'instance' | 'both';
  readonly rank: number;
}

/** The core, as panels see it. */
export interface IDevkit {
  readonly store: Store;
  readonly connection: Connection;
  readonly commands: CommandRegistry;
  /** Actions beside models and instances, in the order to show them. */
  readonly actions: readonly IAction[];
  readonly actionsChanged: ISignal<IDevkit, void>;
  addAction(action: IAction): void;
  /** Open a file of the runtime's machine in an editor, at a line (from 1) if one is given. */
  openSource(path: string, line?: number): Promise<void>;
  /** What a command is about: its arguments, else the row that was clicked or has the focus. */
  target(args: { readonly [name: string]: unknown }): ITarget | null;
  /** Tell of an error that a person's action met. */
  fail(problem: unknown): void;
}

export const IDevkit = new Token<IDevkit>(
  'triton-devkit:IDevkit',
  'The runtime of this workspace, as the panels of devkit see it.'
);

/** The palette's and the launcher's heading of everything here. */
export const CATEGORY = 'Triton devkit';

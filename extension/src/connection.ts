// The way to the Jupyter server: REST calls and the ONE WebSocket of this tab. Knows no panel and
// keeps no picture: that is the store's.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { backOff } from './pure/backoff';
import type { IFailure, IRuntime } from './messages';

/** Where the runtime stands, as the server extension says it; `offline` is Jupyter itself gone. */
export interface IStatus {
  readonly state:
    | 'connecting'
    | 'offline'
    | 'none'
    | 'starting'
    | 'failed'
    | 'running';
  readonly workspace: string;
  /** The folder that Jupyter serves: files below it can be opened. */
  readonly root: string;
  readonly text: string;
  readonly runtime: IRuntime | null;
}

/** What a tab wants of the event stream; null leaves it out. */
export interface IWanted {
  readonly gauges: number | null;
  readonly debugger: number | null;
  /** The last event that is here, and the runtime it came from. */
  readonly since: number | null;
  readonly pid: number | null;
}

/** A call that was refused, with what the runtime says about it. */
export class CallError extends Error {
  constructor(
    readonly failure: IFailure,
    readonly status: number
  ) {
    super(failure.error);
  }
}

export type Query = { [name: string]: string | number | boolean | undefined };

export class Connection {
  readonly settings: ServerConnection.ISettings;
  private _socket: WebSocket | null = null;
  private _wanted: IWanted | null = null;
  private _tries = 0;
  private _timer = 0;
  private _disposed = false;
  private _message = new Signal<this, any>(this);
  private _lost = new Signal<this, void>(this);

  constructor(settings?: ServerConnection.ISettings) {
    this.settings = settings ?? ServerConnection.makeSettings();
  }

  /** A message of the stream, parsed. */
  get message(): ISignal<this, any> {
    return this._message;
  }

  /** The Jupyter server does not answer; a new try comes by itself. */
  get lost(): ISignal<this, void> {
    return this._lost;
  }

  open(): void {
    if (this._socket || this._disposed) {
      return;
    }
    window.clearTimeout(this._timer);
    const { wsUrl, token, appendToken, WebSocket } = this.settings;
    let url = URLExt.join(wsUrl, 'devkit/api/events');
    if (appendToken && token) {
      url += `?token=${encodeURIComponent(token)}`;
    }
    const socket = new WebSocket(url);
    this._socket = socket;
    socket.onopen = () => {
      this._tries = 0;
      this._tell();
    };
    socket.onmessage = event => {
      if (this._socket === socket) {
        this._message.emit(JSON.parse(event.data));
      }
    };
    socket.onclose = () => {
      if (this._socket === socket) {
        this._socket = null;
        this._lost.emit();
        if (!this._disposed) {
          this._timer = window.setTimeout(
            () => this.open(),
            backOff(this._tries++, Math.random())
          );
        }
      }
    };
  }

  /** Say what this tab wants from now on. */
  want(wanted: IWanted): void {
    this._wanted = wanted;
    this._tell();
  }

  private _tell(): void {
    if (this._wanted && this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(JSON.stringify(this._wanted));
    }
  }

  /** A call of the control API (`v1/...`) or of the server extension; its JSON. */
  async call<T>(
    method: string,
    path: string,
    body?: unknown,
    query?: Query
  ): Promise<T> {
    const response = await this.fetch(method, path, body, query);
    return (await response.json()) as T;
  }

  /** As `call`, but the response itself: for texts and files. */
  async fetch(
    method: string,
    path: string,
    body?: unknown,
    query?: Query
  ): Promise<Response> {
    const init: RequestInit = { method };
    if (body instanceof Blob || body instanceof ArrayBuffer) {
      init.body = body;
    } else if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'Content-Type': 'application/json' };
    } else if (method !== 'GET') {
      init.body = '';
    }
    const url =
      URLExt.join(this.settings.baseUrl, 'devkit/api', path) + asQuery(query);
    const response = await ServerConnection.makeRequest(
      url,
      init,
      this.settings
    );
    if (!response.ok || response.headers.get('Devkit-Runtime') === 'none') {
      throw await failed(response);
    }
    return response;
  }

  dispose(): void {
    this._disposed = true;
    window.clearTimeout(this._timer);
    this._socket?.close();
    Signal.clearData(this);
  }
}

function asQuery(query: Query | undefined): string {
  const pairs = Object.entries(query ?? {}).filter(
    ([, value]) => value !== undefined && value !== ''
  );
  const text = pairs.map(
    ([name, value]) =>
      `${encodeURIComponent(name)}=${encodeURIComponent(
        value === true ? 1 : value === false ? 0 : value!
      )}`
  );
  return text.length ? `?${text.join('&')}` : '';
}

async function failed(response: Response): Promise<CallError> {
  const text = await response.text();
  let failure: Partial<IFailure> & { message?: string } = {};
  try {
    failure = JSON.parse(text);
  } catch {
    failure = { error: text };
  }
  const error =
    failure.error || failure.message || `${response.status} ${response.statusText}`;
  return new CallError({ ...failure, error } as IFailure, response.status);
}

/** What to show of an error: what happened, and what to do next. */
export function sentence(problem: unknown): string {
  if (problem instanceof CallError) {
    const { error, remedy } = problem.failure;
    return remedy ? `${error}\n${remedy}` : error;
  }
  return problem instanceof Error ? problem.message : String(problem);
}

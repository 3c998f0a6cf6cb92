// What this tab knows of the runtime, for all panels: one snapshot, the events since, the state of
// the connection. Panels read it and say how often they want news; nobody writes into it.

import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { Connection, IStatus } from './connection';
import type { IEvent, IInstance, IModel, ISnapshot } from './messages';
import { IRate, rateOf, UNKNOWN } from './pure/rates';

const KEPT_EVENTS = 2000;
/** Events after which the last snapshot is not true any more. */
const CHANGES = new Set(['model', 'instance', 'operation', 'warning', 'failure']);

export class Store {
  private _status: IStatus = {
    state: 'connecting',
    workspace: '',
    root: '',
    text: '',
    runtime: null
  };
  private _snapshot: ISnapshot | null = null;
  private _rates = new Map<string, IRate>();
  private _recent: IEvent[] = [];
  private _sequence = 0;
  private _wants = new Map<object, number>();
  private _lookOn: number | null = null;
  private _said = '';
  private _saying = 0;
  private _refreshing = 0;
  private _changed = new Signal<this, void>(this);
  private _statusChanged = new Signal<this, IStatus>(this);
  private _events = new Signal<this, readonly IEvent[]>(this);

  constructor(readonly connection: Connection) {
    connection.message.connect((_, message) => this._take(message));
    connection.lost.connect(() => this._lose());
    document.addEventListener('visibilitychange', this._say);
  }

  /** Anything that a panel may show has changed: status or snapshot. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The runtime came, went, starts, failed to start. */
  get statusChanged(): ISignal<this, IStatus> {
    return this._statusChanged;
  }

  /** Events as they come, in order, none twice. */
  get events(): ISignal<this, readonly IEvent[]> {
    return this._events;
  }

  get status(): IStatus {
    return this._status;
  }

  get running(): boolean {
    return this._status.state === 'running';
  }

  /** The last picture; null before the first, kept (and old) while the runtime is gone. */
  get snapshot(): ISnapshot | null {
    return this._snapshot;
  }

  get models(): readonly IModel[] {
    return this._snapshot?.models ?? [];
  }

  model(name: string, version = ''): IModel | undefined {
    return this.models.find(
      one => one.name === name && (!version || one.version === version)
    );
  }

  instance(name: string): IInstance | undefined {
    for (const model of this.models) {
      const found = model.instances.find(one => one.name === name);
      if (found) {
        return found;
      }
    }
    return undefined;
  }

  /** The last events, oldest first. */
  get recent(): readonly IEvent[] {
    return this._recent;
  }

  /** What a model or an instance did between the last two pictures. */
  rate(of: IModel | IInstance): IRate {
    return this._rates.get(key(of)) ?? UNKNOWN;
  }

  /** Ask for a picture every `seconds`, until disposed; a hidden tab gets none. */
  want(seconds: number): IDisposable {
    const owner = {};
    this._wants.set(owner, seconds);
    this._sayLater();
    return new DisposableDelegate(() => {
      this._wants.delete(owner);
      this._sayLater();
    });
  }

  /** Keep a debug session alive from this tab; null looks away. */
  lookOn(session: number | null): void {
    this._lookOn = session;
    this._sayLater();
  }

  /** Take a new picture soon; several calls make one. */
  refresh(): void {
    if (!this._refreshing && this.running && !document.hidden) {
      this._refreshing = window.setTimeout(() => void this._fetch(), 250);
    }
  }

  /** Start a runtime; `status` says how it goes. */
  async start(repositories: readonly string[] = []): Promise<void> {
    const status = await this.connection.call<IStatus>('POST', 'runtime', {
      repositories
    });
    this._setStatus(status);
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this._say);
    window.clearTimeout(this._saying);
    window.clearTimeout(this._refreshing);
    Signal.clearData(this);
  }

  private async _fetch(): Promise<void> {
    try {
      this._picture(await this.connection.call<ISnapshot>('GET', 'v1/snapshot'));
    } catch {
      // The stream tells why, if the runtime has gone.
    } finally {
      this._refreshing = 0;
    }
  }

  private _take(message: any): void {
    if (message.type === 'runtime') {
      this._setStatus(message.runtime);
    } else if (message.type === 'snapshot') {
      this._picture(message.snapshot);
    } else if (message.type === 'events') {
      this._happened(message.events);
    }
  }

  private _setStatus(status: IStatus): void {
    const other = status.runtime?.pid !== this._status.runtime?.pid;
    this._status = status;
    if (other && status.runtime) {
      this._sequence = 0;
      this._recent = [];
      this._rates.clear();
      this._snapshot = null;
    }
    this._statusChanged.emit(status);
    this._changed.emit();
    if (other) {
      this._said = '';
      this._sayLater();
    }
  }

  private _lose(): void {
    if (this._status.state !== 'offline') {
      this._setStatus({ ...this._status, state: 'offline' });
    }
  }

  private _picture(next: ISnapshot): void {
    const before = this._snapshot;
    if (before && before.runtime.pid === next.runtime.pid) {
      if (next.time < before.time) {
        return; // overtaken by a newer one
      }
      // Pictures of the same moment tell no rate; the last one holds.
      if (next.time - before.time > 0.4) {
        this._compare(before, next);
      }
    }
    this._snapshot = next;
    this._sequence = Math.max(this._sequence, next.sequence);
    this._changed.emit();
  }

  private _compare(before: ISnapshot, next: ISnapshot): void {
    const seconds = next.time - before.time;
    const old = new Map<string, IModel | IInstance>();
    each(before, one => old.set(key(one), one));
    this._rates.clear();
    each(next, one =>
      this._rates.set(key(one), rateOf(old.get(key(one))?.work, one.work, seconds))
    );
  }

  private _happened(events: readonly IEvent[]): void {
    const news = events.filter(one => one.sequence > this._sequence);
    if (!news.length) {
      return;
    }
    this._sequence = news[news.length - 1].sequence;
    this._recent.push(...news);
    if (this._recent.length > KEPT_EVENTS) {
      this._recent.splice(0, this._recent.length - KEPT_EVENTS);
    }
    this._events.emit(news);
    if (this._wants.size && news.some(one => CHANGES.has(one.kind))) {
      this.refresh();
    }
  }

  private _sayLater(): void {
    window.clearTimeout(this._saying);
    this._saying = window.setTimeout(this._say, 50);
  }

  private _say = (): void => {
    const asked = [...this._wants.values()];
    const gauges =
      document.hidden || !asked.length ? null : Math.max(0.5, Math.min(...asked));
    const said = JSON.stringify([gauges, this._lookOn]);
    if (said !== this._said) {
      this._said = said;
      this.connection.want({
        gauges,
        debugger: this._lookOn,
        since: this._snapshot ? this._sequence : null,
        pid: this._status.runtime?.pid ?? null
      });
      if (gauges !== null) {
        this.refresh();
      }
    }
  };
}

function key(of: IModel | IInstance): string {
  return 'instances' in of ? `${of.name}\0${of.version}` : `${of.model}\0${of.version}\0${of.name}\0${of.pid}`;
}

function each(snapshot: ISnapshot, work: (one: IModel | IInstance) => void): void {
  for (const model of snapshot.models) {
    work(model);
    model.instances.forEach(work);
  }
}

// The Logs panel: what models and the runtime print, of all, of a model or of one instance.

import * as React from 'react';

import { CallError } from '../../connection';
import type { ILogLine } from '../../messages';
import { Panel, Problem } from '../../panel';
import { leaf } from '../../pure/paths';
import { IDevkit, ITarget } from '../../tokens';
import { clock, joined, matcher, pieces, plain } from './view';

const KEPT = 2000;
const EVERY = 1000;

/** What the panel is about; kept over a reload of the page. */
export interface ISelected {
  readonly model: string;
  readonly instance: string;
  readonly filter: string;
}

export class LogsPanel extends Panel {
  private _selected: ISelected = { model: '', instance: '', filter: '' };
  private _lines: readonly ILogLine[] = [];
  private _shown: readonly ILogLine[] = [];
  private _after = 0;
  private _pid: number | undefined;
  private _follow = true;
  private _timer = 0;
  private _asking = false;
  private _turn = 0;
  private _problem: unknown = null;

  constructor(
    devkit: IDevkit,
    private readonly keep: (panel: LogsPanel) => void
  ) {
    super(devkit, 5);
    this.addClass('dk-Logs');
  }

  get selected(): ISelected {
    return this._selected;
  }

  select(target: Partial<ITarget>, filter = this._selected.filter): void {
    const { model = '', instance = '' } = target;
    const other = model !== this._selected.model || instance !== this._selected.instance;
    this._selected = { model, instance, filter };
    this.title.label = instance || model ? `Logs: ${instance || model}` : 'Logs';
    this.keep(this);
    if (other) {
      this._anew();
    }
    this._sift();
    void this._read();
  }

  dispose(): void {
    window.clearInterval(this._timer);
    super.dispose();
  }

  protected get outlives(): boolean {
    return this._lines.length > 0;
  }

  protected shown(): void {
    this._timer = window.setInterval(() => void this._read(), EVERY);
    void this._read();
  }

  protected hidden(): void {
    window.clearInterval(this._timer);
  }

  protected body(): React.ReactNode {
    const { store } = this.devkit;
    const { model, instance, filter } = this._selected;
    const bad = matcher(filter) === null;
    const chosen = JSON.stringify([model, instance]);
    const choices = [['', ''], ...store.models.flatMap(one => [
      [one.name, ''],
      ...one.instances.map(each => [one.name, each.name])
    ])].map(one => JSON.stringify(one));
    if (!choices.includes(chosen)) {
      choices.push(chosen);
    }
    return (
      <>
        <div className="dk-Logs-bar">
          <select
            className="jp-mod-styled"
            aria-label="Whose lines"
            value={chosen}
            onChange={event => {
              const [name, one] = JSON.parse(event.target.value);
              this.select({ model: name, instance: one });
            }}
          >
            {[...new Set(choices)].map(one => (
              <option key={one} value={one}>
                {label(JSON.parse(one))}
              </option>
            ))}
          </select>
          <input
            className="jp-mod-styled dk-Filter"
            type="search"
            placeholder="Filter: text or /pattern/"
            aria-label="Filter lines"
            aria-invalid={bad}
            title={bad ? 'This is no valid pattern' : ''}
            value={filter}
            onChange={event => this.select(this._selected, event.target.value)}
          />
          <label className="dk-Logs-follow">
            <input
              type="checkbox"
              checked={this._follow}
              onChange={event => this._setFollow(event.target.checked)}
            />
            Follow
          </label>
          <button className="dk-Act" onClick={() => this._clear()}>
            Clear
          </button>
          <span className="dk-dim">
            {this._shown.length === this._lines.length
              ? `${this._lines.length} lines`
              : `${this._shown.length} of ${this._lines.length} lines`}
          </span>
        </div>
        <Problem of={this._problem} />
        {bad ? <div className="dk-Logs-note dk-warn">This is no valid pattern; all lines are shown.</div> : null}
        <Lines
          lines={this._shown}
          follow={this._follow}
          empty={this._lines.length ? 'No line fits the filter.' : 'Nothing was printed yet.'}
          setFollow={this._setFollow}
          open={this._open}
        />
      </>
    );
  }

  private _setFollow = (follow: boolean): void => {
    if (follow !== this._follow) {
      this._follow = follow;
      this.update();
    }
  };

  private _open = (line: ILogLine): void => {
    this.devkit
      .openSource(line.file, line.line)
      .catch(problem => this.devkit.fail(problem));
  };

  private _anew(): void {
    this._turn++;
    this._asking = false;
    this._lines = [];
    this._shown = [];
    this._after = 0;
    this._problem = null;
  }

  /** Forget what is shown; only what comes from now on is. */
  private _clear(): void {
    this._lines = [];
    this._sift();
  }

  private _sift(): void {
    const fits = matcher(this._selected.filter);
    this._shown = fits ? this._lines.filter(one => fits(plain(one.text))) : this._lines;
    this.update();
  }

  private async _read(): Promise<void> {
    const { store, connection } = this.devkit;
    if (!this.isVisible || document.hidden || !store.running) {
      return;
    }
    const pid = store.status.runtime?.pid;
    if (pid !== this._pid) {
      this._pid = pid;
      this._anew(); // another runtime counts its lines from the start
    }
    if (this._asking) {
      return;
    }
    this._asking = true;
    const turn = this._turn;
    const { model, instance } = this._selected;
    try {
      const news = await connection.call<ILogLine[]>('GET', 'v1/logs', undefined, {
        model, instance, after: this._after, count: KEPT
      });
      if (turn !== this._turn || this.isDisposed) {
        return; // other lines are wanted by now
      }
      const failed = this._problem !== null;
      this._problem = null;
      const lines = joined(this._lines, news, KEPT);
      this._after = news.length ? news[news.length - 1].sequence : this._after;
      if (lines !== this._lines || failed) {
        this._lines = lines;
        this._sift();
      }
    } catch (problem) {
      // Without a runtime the status says so; anything else is worth a word.
      if (turn === this._turn && store.running && problem instanceof CallError) {
        this._problem = problem;
        this.update();
      }
    } finally {
      if (turn === this._turn) {
        this._asking = false;
      }
    }
  }
}

function label([model, instance]: [string, string]): string {
  return instance ? `\u2003${instance}` : model || 'Everything';
}

interface ILinesProps {
  readonly lines: readonly ILogLine[];
  readonly follow: boolean;
  readonly empty: string;
  readonly setFollow: (follow: boolean) => void;
  readonly open: (line: ILogLine) => void;
}

/** The lines; drawn again only when there are others. Scrolling up stops to follow them. */
const Lines = React.memo(function Lines(props: ILinesProps): JSX.Element {
  const { lines, follow, setFollow } = props;
  const place = React.useRef<HTMLDivElement>(null);
  React.useLayoutEffect(() => {
    if (follow && place.current) {
      place.current.scrollTop = place.current.scrollHeight;
    }
  }, [lines, follow]);
  return (
    <div
      ref={place}
      className="dk-Logs-lines"
      role="log"
      aria-label="Lines"
      tabIndex={0}
      onWheel={event => event.deltaY < 0 && setFollow(false)}
      onScroll={event => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        if (clientHeight) {
          setFollow(scrollHeight - scrollTop - clientHeight < 24);
        }
      }}
    >
      {lines.map(one => (
        <Line key={one.sequence} line={one} open={props.open} />
      ))}
      {lines.length ? null : <div className="dk-Empty">{props.empty}</div>}
    </div>
  );
});

const Line = React.memo(function Line({
  line,
  open
}: {
  readonly line: ILogLine;
  readonly open: (line: ILogLine) => void;
}): JSX.Element {
  const bad = /^(error|critical|stderr)$/i.test(line.stream);
  const warn = /^warn/i.test(line.stream);
  return (
    <div className={`dk-Logs-line ${bad ? 'dk-mod-bad' : warn ? 'dk-mod-warn' : ''}`}>
      <span className="dk-dim" title={`${line.stream}, pid ${line.pid}`}>
        {clock(line.time)}
      </span>
      <span className="dk-Logs-who dk-dim" title={line.instance || line.model || 'the runtime'}>
        {line.instance || line.model || 'runtime'}
      </span>
      <span className="dk-Logs-text">
        {pieces(line.text.replace(/\n$/, '')).map((one, index) => (
          <span key={index} className={one.style || undefined}>
            {one.text}
          </span>
        ))}
      </span>
      {line.file.startsWith('/') ? (
        <button className="dk-Logs-place" title={`${line.file}:${line.line}`} onClick={() => open(line)}>
          {leaf(line.file)}:{line.line}
        </button>
      ) : null}
    </div>
  );
});

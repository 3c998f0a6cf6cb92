// What the Logs panel shows of the lines, without any drawing: colours, filter, what is kept.

export interface IPiece {
  readonly text: string;
  /** CSS classes; empty for plain text. */
  readonly style: string;
}

const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
// Colours and styles end in `m`; every other escape (cursor, title) only goes away.
const ESCAPE = /\x1b\[([\d;:]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]/g;

/** A text with ANSI escapes as pieces of one style each. */
export function pieces(text: string): IPiece[] {
  const found: IPiece[] = [];
  let state: IStyle = PLAIN;
  let at = 0;
  const take = (end: number) => {
    if (end > at) {
      found.push({ text: text.slice(at, end), style: classes(state) });
    }
  };
  for (const escape of text.matchAll(ESCAPE)) {
    take(escape.index);
    at = escape.index + escape[0].length;
    if (escape[2] === 'm') {
      state = styled(state, escape[1]);
    }
  }
  take(text.length);
  return found;
}

/** The text alone: what a filter looks at. */
export function plain(text: string): string {
  return text.replace(ESCAPE, '');
}

interface IStyle {
  readonly colour: string;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
}

const PLAIN: IStyle = { colour: '', bold: false, dim: false, italic: false, underline: false };

function styled(before: IStyle, codes: string): IStyle {
  let now = before;
  const numbers = codes.split(/[;:]/).map(Number);
  for (let place = 0; place < numbers.length; place++) {
    const code = numbers[place];
    if (code === 0) {
      now = PLAIN;
    } else if (code === 1) {
      now = { ...now, bold: true };
    } else if (code === 2) {
      now = { ...now, dim: true };
    } else if (code === 3) {
      now = { ...now, italic: true };
    } else if (code === 4) {
      now = { ...now, underline: true };
    } else if (code === 22) {
      now = { ...now, bold: false, dim: false };
    } else if (code === 23) {
      now = { ...now, italic: false };
    } else if (code === 24) {
      now = { ...now, underline: false };
    } else if (code >= 30 && code <= 37) {
      now = { ...now, colour: COLOURS[code - 30] };
    } else if (code >= 90 && code <= 97) {
      now = { ...now, colour: COLOURS[code - 90] };
    } else if (code === 39) {
      now = { ...now, colour: '' };
    } else if (code === 38 || code === 48) {
      // A colour out of 256, or by its parts: only the first sixteen have a name in a theme.
      const chosen = numbers[place + 2];
      if (code === 38) {
        const named = numbers[place + 1] === 5 && chosen < 16;
        now = { ...now, colour: named ? COLOURS[chosen % 8] : '' };
      }
      place += numbers[place + 1] === 5 ? 2 : 4;
    }
  }
  return now;
}

function classes(style: IStyle): string {
  const names = [
    style.colour && `dk-ansi-${style.colour}`,
    style.bold && 'dk-ansi-bold',
    style.dim && 'dk-ansi-dim',
    style.italic && 'dk-ansi-italic',
    style.underline && 'dk-ansi-underline'
  ];
  return names.filter(Boolean).join(' ');
}

/** A test of what a person typed: a part of the text, or `/a pattern/`; null for no valid one. */
export function matcher(filter: string): ((text: string) => boolean) | null {
  const pattern = /^\/(.+)\/$/.exec(filter.trim());
  if (pattern) {
    try {
      const test = new RegExp(pattern[1], 'i');
      return text => test.test(text);
    } catch {
      return null;
    }
  }
  const wanted = filter.trim().toLowerCase();
  return text => !wanted || text.toLowerCase().includes(wanted);
}

/** `lines` with `news` behind them, none twice, at most `most`; the same array without news. */
export function joined<T extends { readonly sequence: number }>(
  lines: readonly T[],
  news: readonly T[],
  most: number
): readonly T[] {
  const last = lines.length ? lines[lines.length - 1].sequence : 0;
  const fresh = news.filter(one => one.sequence > last);
  return fresh.length ? [...lines, ...fresh].slice(-most) : lines;
}

/** The time of day, from seconds since 1970. */
export function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(
    at.getMilliseconds()
  ).padStart(3, '0')}`;
}

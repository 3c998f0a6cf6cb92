// Numbers as people read them. No import, so that node's own test runner takes it as it is.

export function bytes(value: number): string {
  if (!(value >= 0)) {
    return '–';
  }
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[place]}`;
}

export function count(value: number): string {
  if (!Number.isFinite(value)) {
    return '–';
  }
  if (value >= 1e6) {
    return `${trim(value / 1e6)} M`;
  }
  if (value >= 1e4) {
    return `${trim(value / 1e3)} k`;
  }
  return trim(value);
}

/** A rate per second; small ones keep a digit. */
export function rate(value: number | null): string {
  return value === null || !Number.isFinite(value) ? '–' : count(value);
}

/** A time, from seconds. */
export function duration(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) {
    return '–';
  }
  if (seconds < 1e-3) {
    return `${trim(seconds * 1e6)} µs`;
  }
  if (seconds < 1) {
    return `${trim(seconds * 1e3)} ms`;
  }
  return seconds < 120 ? `${trim(seconds)} s` : `${trim(seconds / 60)} min`;
}

export function shape(extents: readonly number[]): string {
  return `[${extents.join(', ')}]`;
}

function trim(value: number): string {
  if (value !== 0 && Math.abs(value) < 10) {
    return value.toFixed(1).replace(/\.0$/, '');
  }
  return String(Math.round(value));
}

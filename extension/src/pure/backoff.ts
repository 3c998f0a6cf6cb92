// How long to wait before the next try.

const FIRST = 1000;
const LONGEST = 30000;

/** Milliseconds before try number `tries` (from 0); `chance` (0 to 1) keeps tabs apart. */
export function backOff(tries: number, chance: number): number {
  const most = Math.min(LONGEST, FIRST * 2 ** Math.min(tries, 10));
  return most * (0.5 + chance / 2);
}

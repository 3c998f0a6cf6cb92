// What happened between two pictures of the same counters.

export interface ICounters {
  readonly requests: number;
  readonly failed: number;
  readonly queue_ns: number;
  readonly input_ns: number;
  readonly infer_ns: number;
  readonly output_ns: number;
}

export interface IRate {
  /** Requests per second; null where two pictures do not tell. */
  readonly requests: number | null;
  /** Mean seconds of a request, queue included; null without requests. */
  readonly seconds: number | null;
  readonly failed: number;
}

export const UNKNOWN: IRate = { requests: null, seconds: null, failed: 0 };

/** The rate from `before` to `now`, `seconds` apart; counters that went back started anew. */
export function rateOf(
  before: ICounters | null | undefined,
  now: ICounters | null | undefined,
  seconds: number
): IRate {
  if (!before || !now || !(seconds > 0) || now.requests < before.requests) {
    return UNKNOWN;
  }
  const requests = now.requests - before.requests;
  const spent = total(now) - total(before);
  return {
    requests: requests / seconds,
    seconds: requests ? spent / requests / 1e9 : null,
    failed: now.failed - before.failed
  };
}

function total(one: ICounters): number {
  return one.queue_ns + one.input_ns + one.infer_ns + one.output_ns;
}

/** The value that `share` of `values` do not exceed; null without values. */
export function quantile(values: readonly number[], share: number): number | null {
  if (!values.length) {
    return null;
  }
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

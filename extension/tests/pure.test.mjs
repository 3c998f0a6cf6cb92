// The pure helpers, as they are built: no browser, no JupyterLab.

import assert from 'node:assert/strict';
import test from 'node:test';

import { backOff } from '../lib/pure/backoff.js';
import { bytes, count, duration, rate, shape } from '../lib/pure/format.js';
import { below, leaf, parent, place } from '../lib/pure/paths.js';
import { quantile, rateOf, UNKNOWN } from '../lib/pure/rates.js';
import { groups, light, remark } from '../lib/panels/models/view.js';

test('tries come later and later, up to half a minute', () => {
  assert.equal(backOff(0, 1), 1000);
  assert.equal(backOff(0, 0), 500);
  assert.equal(backOff(3, 1), 8000);
  assert.equal(backOff(50, 1), 30000);
});

test('numbers are written short', () => {
  assert.deepEqual([-1, 0, 999, 1000, 1536, 5 * 2 ** 20, 3 * 2 ** 30].map(bytes), [
    '–', '0 B', '999 B', '1.0 KB', '1.5 KB', '5.0 MB', '3.0 GB'
  ]);
  assert.deepEqual([0, 0.4, 9.96, 1234, 12345, 3.2e6].map(count), [
    '0', '0.4', '10', '1234', '12 k', '3.2 M'
  ]);
  assert.deepEqual([null, 2.5e-5, 0.0042, 3, 600].map(duration), [
    '–', '25 µs', '4.2 ms', '3 s', '10 min'
  ]);
  assert.equal(rate(null), '–');
  assert.equal(shape([-1, 3]), '[-1, 3]');
});

test('a file is opened where JupyterLab can reach it', () => {
  assert.equal(below('/srv/work', '/srv/work/models/a/1/model.py'), 'models/a/1/model.py');
  assert.equal(below('/srv/work/', '/srv/work/a'), 'a');
  assert.equal(below('/srv/work', '/srv/workshop/a'), null);
  assert.equal(below('/', '/etc/a'), 'etc/a');
  assert.equal(leaf('/a/b/'), 'b');
  assert.equal(parent('/a/b/c'), '/a/b');
  assert.deepEqual(place('/a/model.py:12'), { path: '/a/model.py', line: 12 });
  assert.deepEqual(place('/a/model.py'), { path: '/a/model.py', line: 0 });
});

const work = (requests, infer_ns) => ({
  requests, failed: 0, queue_ns: 0, input_ns: 0, infer_ns, output_ns: 0
});

test('two pictures make a rate', () => {
  assert.deepEqual(rateOf(work(10, 1e9), work(30, 3e9), 2), {
    requests: 10, seconds: 0.1, failed: 0
  });
  assert.equal(rateOf(null, work(1, 1), 2), UNKNOWN);
  assert.equal(rateOf(work(9, 9), work(1, 1), 2), UNKNOWN, 'counters began anew');
  assert.equal(rateOf(work(1, 1), work(1, 1), 2).seconds, null);
});

test('quantiles of few values are values', () => {
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile([3, 1, 2], 0.5), 2);
  assert.equal(quantile([3, 1, 2], 0.99), 3);
});

const model = (name, more = {}) => ({
  name, version: '1', state: 'READY', folder: `/r/${name}`, scratch: false, error: '',
  unlearned: false, reason: '', ...more
});

test('models stand under their repository, cells first', () => {
  const all = [
    model('b'), model('a'), model('cell', { scratch: true, folder: '/w/.devkit/cell' }),
    model('x', { folder: '/other/x' })
  ];
  const found = groups(all, ['/r', '/other']);
  assert.deepEqual(found.map(one => [one.title, one.rows.map(row => row.name)]), [
    ['Notebook cells', ['cell']], ['r', ['a', 'b']], ['other', ['x']]
  ]);
  assert.deepEqual(groups(all, ['/r'], 'X').map(one => one.title), ['other']);
});

test('a light and a remark say how a model is', () => {
  assert.equal(light(model('a')), 'good');
  const older = model('a', { error: 'Traceback\n  x\nSyntaxError: no' });
  assert.equal(light(older), 'warn');
  assert.equal(remark(older), 'older version serves: SyntaxError: no');
  const failed = model('a', { state: 'UNAVAILABLE', error: 'x', reason: 'it raised\nmore' });
  assert.equal(light(failed), 'bad');
  assert.equal(remark(failed), 'it raised');
});

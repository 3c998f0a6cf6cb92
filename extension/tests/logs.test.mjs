// What the Logs panel makes of a line.

import assert from 'node:assert/strict';
import test from 'node:test';

import { joined, matcher, pieces, plain } from '../lib/panels/logs/view.js';

test('colours become pieces, and the escapes go', () => {
  assert.deepEqual(pieces('a \x1b[1;31mred\x1b[0m b'), [
    { text: 'a ', style: '' },
    { text: 'red', style: 'dk-ansi-red dk-ansi-bold' },
    { text: ' b', style: '' }
  ]);
  assert.deepEqual(pieces('\x1b[mplain'), [{ text: 'plain', style: '' }]);
  assert.deepEqual(pieces('\x1b[38;5;2mgreen\x1b[39m\x1b[38;2;1;4;3mrgb'), [
    { text: 'green', style: 'dk-ansi-green' },
    { text: 'rgb', style: '' }
  ]);
  assert.deepEqual(pieces(''), []);
});

test('escapes that move the cursor or name the window only go away', () => {
  assert.equal(plain('\x1b]0;title\x07a\x1b[2K\x1b[1Ab'), 'ab');
  assert.equal(plain('no escape [31m'), 'no escape [31m');
});

test('a filter is a part of the text, or a pattern', () => {
  assert.ok(matcher('')('anything'));
  assert.ok(matcher(' ERR ')('an error'));
  assert.ok(!matcher('err')('fine'));
  assert.ok(matcher('/^a.c$/')('abc'));
  assert.ok(!matcher('/^a.c$/')('abcd'));
  assert.equal(matcher('/(/'), null);
});

test('lines come once, in order, and not without end', () => {
  const line = sequence => ({ sequence });
  const first = joined([], [line(1), line(2)], 3);
  assert.deepEqual(joined(first, [line(2), line(3), line(4)], 3).map(one => one.sequence), [2, 3, 4]);
  assert.equal(joined(first, [line(2)], 3), first);
});

// The plugins of this extension, one line each.

import { core } from './core';
import { logs } from './panels/logs/plugin';
import { models } from './panels/models/plugin';

export default [core, models, logs];

// The plugins of this extension, one line each.

import { core } from './core';
import { models } from './panels/models/plugin';

export default [core, models];

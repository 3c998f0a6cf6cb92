// The icons of this extension, drawn in the text's colour.

import { LabIcon } from '@jupyterlab/ui-components';

export const modelsIcon = new LabIcon({
  name: 'triton-devkit:models',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16"><g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"><path class="jp-icon3" d="M12 3v18M12 21c-4 0-7-3-7-7V9M12 21c4 0 7-3 7-7V9M3 11l2-2.5L7 11M17 11l2-2.5 2 2.5M10 5.2l2-2.5 2 2.5"/></g></svg>'
});

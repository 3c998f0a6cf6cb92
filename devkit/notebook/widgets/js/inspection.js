// devkit.inspect and devkit.compare: a card for each tensor, an entry for each difference.
import { inspection, questions } from "./tensors.js";

function render({ model, el }) {
  el.classList.add("dk");
  const [ask, end] = questions(model);
  const ends = [end];
  el.append(inspection(model.get("data"), ask, ends));
  return () => ends.forEach((each) => each());
}

export default { render };

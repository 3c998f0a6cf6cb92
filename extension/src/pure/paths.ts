// Paths of the runtime's machine, as JupyterLab opens them.

/** `path` from `root` on, as the contents API names it; null where it lies elsewhere. */
export function below(root: string, path: string): string | null {
  const base = root.replace(/\/+$/, '');
  if (!path.startsWith(`${base}/`)) {
    return null;
  }
  return path.slice(base.length + 1);
}

/** The last part of a path. */
export function leaf(path: string): string {
  return path.replace(/\/+$/, '').split('/').pop() ?? path;
}

/** Everything before the last part. */
export function parent(path: string): string {
  const at = path.replace(/\/+$/, '').lastIndexOf('/');
  return at > 0 ? path.slice(0, at) : '/';
}

/** A place as devkit writes it, `path:line`; the line is 0 where there is none. */
export function place(text: string): { path: string; line: number } {
  const found = /^(.*?)(?::(\d+))?$/.exec(text);
  return { path: found?.[1] ?? text, line: Number(found?.[2] ?? 0) };
}

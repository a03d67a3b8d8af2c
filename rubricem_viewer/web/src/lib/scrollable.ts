// What scrolls by itself can be reached by the keyboard, and only then.

export function scrollable(node: HTMLElement): { destroy: () => void } {
  const look = (): void => {
    const overflows = node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1;
    if (overflows) node.tabIndex = 0;
    else node.removeAttribute("tabindex");
  };
  const watcher = new ResizeObserver(look);
  watcher.observe(node);
  for (const child of node.children) watcher.observe(child);
  return { destroy: () => watcher.disconnect() };
}

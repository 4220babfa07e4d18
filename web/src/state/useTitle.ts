import { useEffect } from "preact/hooks";

/** What the tab is called while a component is shown: `Jobs · dibs`. */
export function useTitle(name: string): void {
  useEffect(() => {
    const before = document.title;
    document.title = name ? `${name} · dibs` : "dibs";
    return () => {
      document.title = before;
    };
  }, [name]);
}

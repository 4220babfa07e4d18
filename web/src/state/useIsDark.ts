import { useEffect, useState } from "preact/hooks";
import { theme } from "./theme";

/** The canvas knows no style sheet: it is drawn again when the colours change. */
export function useIsDark(): boolean {
  const [system] = useState(() => window.matchMedia("(prefers-color-scheme: dark)"));
  const [isDark, setDark] = useState(system.matches);
  useEffect(() => {
    const changed = () => setDark(system.matches);
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  return theme.value === "system" ? isDark : theme.value === "dark";
}

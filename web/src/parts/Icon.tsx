// Drawn here: the page loads nothing from other hosts. Each is a path on a 16 by 16 grid.
const PATHS = {
  now: "M2 9h3l2-6 3 10 2-4h2",
  jobs: "M2 4h12M2 8h12M2 12h12",
  timeline: "M2 4h5M5 8h7M9 12h5",
  history: "M2 2h3v3H2zM7 2h3v3H7zM12 2h2v3h-2zM2 7h3v3H2zM7 7h3v3H7zM2 12h3v2H2zM12 12h2v2h-2z",
  submit: "M8 3v10M3 8h10",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5",
  system: "M2 3h12v8H2zM6 14h4",
  keys: "M1 4h14v8H1zM4 7h.5M7.5 7H8M11 7h.5M5 10h6",
  copy: "M5 5h8v8H5zM3 10V3h7",
  find: "M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2M11 11l3.5 3.5",
  close: "M4 4l8 8M12 4l-8 8",
  manage: "M2 5h7M13 5h1M11 3v4M2 11h2M8 11h6M6 9v4",
  sweep: "M3 13c2-6 3-1 5-6s3-3 5-4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

interface Props {
  values: readonly (number | null)[];
  most: number; // the value at the top
  label: string;
}

const WIDTH = 120;
const HEIGHT = 28;

/** A line without axes, from the first value that is known; a gap where the value is unknown. */
export function Sparkline({ values: all, most, label }: Props) {
  const values = all.slice(Math.max(0, all.findIndex((value) => value !== null)));
  const step = WIDTH / Math.max(1, values.length - 1);
  let path = "";
  let isDown = false;
  values.forEach((value, place) => {
    if (value === null || !most) {
      isDown = false;
      return;
    }
    const y = HEIGHT - 1 - (Math.min(value, most) / most) * (HEIGHT - 2);
    path += `${isDown ? "L" : "M"}${(place * step).toFixed(1)} ${y.toFixed(1)}`;
    isDown = true;
  });
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} />
    </svg>
  );
}

import { useState } from "preact/hooks";
import type { Report } from "../../api/types";
import { energy } from "../../words";
import { LOOKS, USES } from "./uses";

type Week = Report["weeks"][number];

interface Numbers {
  hours: number;
  more: string; // below them
}

const BY = ["project", "user"] as const;

/** GPU hours and energy by project or user and week, above what the GPUs were. `dibs report` shows the same. */
export function Weeks({ report }: { report: Report }) {
  const [by, setBy] = useState<(typeof BY)[number]>("project");
  const weeks = report.weeks;
  const names = [...new Set(weeks.flatMap((week) => rowsOf(week, by).map(([name]) => name)))];
  const total = (week: Week) => USES.reduce((sum, use) => sum + week.machine[`${use}_gpu_hours`], 0);
  return (
    <section class="panel history-weeks" aria-labelledby="history-weeks">
      <div class="history-heading">
        <h2 id="history-weeks">GPU hours and energy by week</h2>
        <div class="history-group" role="group" aria-label="rows">
          {BY.map((one) => (
            <button key={one} class="chip" aria-pressed={one === by} onClick={() => setBy(one)}>
              By {one}
            </button>
          ))}
        </div>
      </div>
      <div class="history-scroll" tabIndex={0} role="region" aria-label="GPU hours and energy">
        <table>
          <thead>
            <tr>
              <th scope="col">{by}</th>
              {weeks.map((week) => (
                <th key={week.week} scope="col">
                  {week.week}
                  {!week.is_over && <small>so far</small>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <th scope="row">{name || "no project"}</th>
                {weeks.map((week) => (
                  <Cell key={week.week} numbers={rowsOf(week, by).find(([one]) => one === name)?.[1]} />
                ))}
              </tr>
            ))}
            {!names.length && (
              <tr>
                <td colSpan={weeks.length + 1} class="faint">
                  No job had a GPU.
                </td>
              </tr>
            )}
          </tbody>
          <tbody>
            <tr>
              <th scope="rowgroup" colSpan={weeks.length + 1}>
                the GPUs of this machine
              </th>
            </tr>
            {USES.filter((use) => weeks.some((week) => week.machine[`${use}_gpu_hours`])).map((use) => (
              <tr key={use} class={use === "unused" ? "history-held" : ""}>
                <th scope="row">{LOOKS[use].word}</th>
                {weeks.map((week) => {
                  const hours = week.machine[`${use}_gpu_hours`];
                  return <Cell key={week.week} numbers={hours ? { hours, more: `${Math.round((100 * hours) / total(week))} %` } : undefined} />;
                })}
              </tr>
            ))}
            <tr>
              <th scope="row">all</th>
              {weeks.map((week) => (
                <Cell key={week.week} numbers={total(week) ? { hours: total(week), more: energy(week.machine.energy_watt_hours) } : undefined} />
              ))}
            </tr>
          </tbody>
        </table>
      </div>
      <p class="faint">
        Shares count as such: eight jobs with an eighth of a GPU for an hour are one GPU hour. Weeks begin on Monday at midnight, {report.time_zone}.
        {report.is_partial && " There were too many jobs to look at all: the true numbers are higher."} In a terminal: <code>dibs report</code>
      </p>
    </section>
  );
}

function rowsOf(week: Week, by: (typeof BY)[number]): [string, Numbers][] {
  if (by === "project")
    return week.projects.map((one) => [one.project, { hours: one.gpu_hours + one.remote_gpu_hours, more: `${energy(one.energy_watt_hours)}${load(one.mean_load_percent)}` }]);
  return week.users.map((one) => [
    one.user,
    {
      hours: one.gpu_hours + one.remote_gpu_hours + one.outside_gpu_hours,
      more: `${energy(one.energy_watt_hours)}${one.outside_gpu_hours ? `, ${inHours(one.outside_gpu_hours)} h outside the queue` : ""}`,
    },
  ]);
}

function Cell({ numbers }: { numbers: Numbers | undefined }) {
  if (!numbers) return <td class="faint">–</td>;
  return (
    <td>
      {inHours(numbers.hours)} h<small>{numbers.more}</small>
    </td>
  );
}

function load(percent: number | null): string {
  return percent === null ? "" : `, load ${Math.round(percent)} %`;
}

function inHours(hours: number): string {
  return hours >= 0.1 || !hours ? hours.toFixed(1) : hours.toFixed(2);
}

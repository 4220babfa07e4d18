import type { Job } from "../../api/types";
import type { Likeness } from "./likeness";
import type { Like } from "./sending";

interface Props {
  likeness: Likeness;
  choose: (like: Like) => void;
}

export function Environment({ likeness, choose }: Props) {
  const { like, offers, error, isKnown } = likeness;
  return (
    <div class="field field-wide">
      <label for="submit-like">Environment</label>
      <select
        id="submit-like"
        aria-describedby="submit-like-note"
        value={String(like)}
        onChange={(event) => choose(event.currentTarget.value === "daemon" ? "daemon" : Number(event.currentTarget.value))}
      >
        {offers.map((job) => (
          <option key={job.id} value={String(job.id)}>
            {titleOf(job)}
          </option>
        ))}
        <option value="daemon">that of the daemon</option>
      </select>
      <p id="submit-like-note" class={error ? "error field-note" : "faint field-note"}>
        {error || (isKnown ? noteOn(like) : "")}
      </p>
    </div>
  );
}

function titleOf(job: Job): string {
  return `like job ${job.id}: ${[job.name, job.project, job.workdir].filter(Boolean).join(" · ")}`;
}

function noteOn(like: Like): string {
  if (like !== "daemon") return `PATH, virtual environment and all the rest as they were when job ${like} was added.`;
  return "HOME, PATH and little else: activate your environment in the command, or add a first job with dibs add.";
}

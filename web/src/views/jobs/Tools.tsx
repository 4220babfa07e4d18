import { useState } from "preact/hooks";
import { address } from "../../api/client";
import { download } from "../../api/download";
import { sayError } from "../../state/toasts";
import type { Asked } from "./asked";
import { ColumnMenu } from "./ColumnMenu";
import { NUMBER, type Column } from "./columns";
import { ChooseAll } from "./Head";
import type { JobPages } from "./pages";
import { ViewMenu } from "./ViewMenu";

interface Props {
  asked: Asked;
  pages: JobPages;
  columns: Column[];
  change: (query: Record<string, string | undefined>) => void;
}

/** What can be done to the table itself. */
export function Tools({ asked, pages, columns, change }: Props) {
  const [isBusy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    const names = [...new Set([NUMBER, ...columns].flatMap((column) => column.csv))];
    await download(address("v1/jobs.csv", { ...asked, columns: names.join() }), "jobs.csv").catch(sayError);
    setBusy(false);
  };
  void pages.version.value; // the menu offers what was found in rows that were read
  return (
    <div class="table-tools">
      <span class="only-compact">
        <ChooseAll pages={pages} word="all" />
      </span>
      <ColumnMenu columns={columns} jobs={() => pages.read()} change={change} />
      <ViewMenu />
      <button disabled={isBusy} title="All jobs that match, with these columns" onClick={() => void save()}>
        CSV
      </button>
    </div>
  );
}

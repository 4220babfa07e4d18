/* Stands in for pyxis: a plugin of Slurm with the same options, which really runs the task in another root.
 *
 * It has what its users rely on, and the limits that its users meet. Slurm parses the options; each step has a copy
 * of the image's root, which is removed at its end; mounts are made in a mount namespace of the task. A mount is a
 * line for a shell, so that names with blanks, commas, colons, quotes and dollars cannot be said. Variables that the
 * image sets (its file `environment`) win, unless --container-env names them.
 *
 * Its argument in plugstack.conf is the folder of the images. What a step asked for is noted there in `asked`.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(stand_in_pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENVIRONMENT, HOME, NO_HOME, REMAP, NO_REMAP, WRITABLE, READONLY, OPTIONS };

static const char *images;
static char *given[OPTIONS];
static char root[PATH_MAX];
static int is_ready;

static int take(int which, const char *value, int is_remote)
{
	(void)is_remote;
	if (which < HOME && (value == NULL || *value == '\0')) {
		slurm_error("pyxis: an option is empty");
		return -1;
	}
	given[which] = strdup(which < HOME ? value : "yes");
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "[pyxis] the image", 1, IMAGE, take},
	{"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "[pyxis] bind mounts", 1, MOUNTS, take},
	{"container-workdir", "PATH", "[pyxis] working directory inside", 1, WORKDIR, take},
	{"container-name", "NAME", "[pyxis] a name to keep the container by", 1, NAME, take},
	{"container-save", "PATH", "[pyxis] save the container to a file", 1, SAVE, take},
	{"container-env", "NAME[,NAME...]", "[pyxis] variables that win over the image's", 1, ENVIRONMENT, take},
	{"container-mount-home", NULL, "[pyxis] mount the home folder", 0, HOME, take},
	{"no-container-mount-home", NULL, "[pyxis] do not", 0, NO_HOME, take},
	{"container-remap-root", NULL, "[pyxis] be root inside", 0, REMAP, take},
	{"no-container-remap-root", NULL, "[pyxis] do not", 0, NO_REMAP, take},
	{"container-writable", NULL, "[pyxis] a root that can be written", 0, WRITABLE, take},
	{"container-readonly", NULL, "[pyxis] do not", 0, READONLY, take},
	SPANK_OPTIONS_TABLE_END
};

int slurm_spank_init(spank_t spank, int count, char **words)
{
	spank_context_t context = spank_context();

	images = count > 0 ? words[0] : "";
	if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR)
		return 0;
	for (struct spank_option *one = options; one->name != NULL; one++)
		if (spank_option_register(spank, one) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* A copy of the image, and the variables that it sets. As the user; what fails here is told when the task starts. */
int slurm_spank_user_init(spank_t spank, int count, char **words)
{
	char line[4 * PATH_MAX], names[8 * PATH_MAX], wanted[5 * PATH_MAX];
	uint32_t job, step;
	FILE *file;

	(void)count, (void)words;
	if (given[IMAGE] == NULL)
		return 0;
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	snprintf(root, sizeof root, "%s/containers/%u.%u", images, job, step);
	/* One call of write: other steps note there, too. */
	snprintf(line, sizeof line, "image=%s remap_root=%s mounts=%s\n", given[IMAGE], given[NO_REMAP] ? "no" : "yes",
		 given[MOUNTS] ? given[MOUNTS] : "");
	snprintf(wanted, sizeof wanted, "%s/asked", images);
	if ((file = fopen(wanted, "a")) != NULL) {
		fputs(line, file);
		fclose(file);
	}
	slurm_info("pyxis: importing docker image: %s", given[IMAGE]);
	if (given[IMAGE][0] == '/')
		snprintf(line, sizeof line, "cp -a '%s' '%s' 2>/dev/null", given[IMAGE], root);
	else
		snprintf(line, sizeof line, "cp -a '%s/%s' '%s' 2>/dev/null", images, given[IMAGE], root);
	if (system(line) != 0) {
		slurm_error("pyxis: failed to import docker image");
		return 0;
	}
	snprintf(names, sizeof names, ",%s,", given[ENVIRONMENT] ? given[ENVIRONMENT] : "");
	snprintf(line, sizeof line, "%s/environment", root);
	if ((file = fopen(line, "r")) != NULL) {
		while (fgets(line, sizeof line, file) != NULL) {
			line[strcspn(line, "\n")] = '\0';
			char *value = strchr(line, '=');
			if (value == NULL)
				continue;
			*value++ = '\0';
			snprintf(wanted, sizeof wanted, ",%s,", line);
			spank_setenv(spank, line, value, strstr(names, wanted) == NULL);
		}
		fclose(file);
	}
	is_ready = 1;
	return 0;
}

static int fail(const char *what, const char *path)
{
	slurm_error("pyxis: couldn't %s %s: %s", what, path, strerror(errno));
	return -1;
}

static int bind_mount(char *entry)
{
	char target[2 * PATH_MAX], line[3 * PATH_MAX], *flags = entry;
	char *source = strsep(&flags, ":"), *inside = flags ? strsep(&flags, ":") : source;
	struct stat found;

	if (strpbrk(entry, " \t\n\"$`\\") || strspn(source, "./") == 0 || strspn(inside, "./") == 0) {
		slurm_error("pyxis: --container-mounts: invalid format: %s", source);
		return -1;
	}
	if (stat(source, &found) != 0)
		return fail("mount", source);
	snprintf(target, sizeof target, "%s/%s", root, inside);
	snprintf(line, sizeof line, S_ISDIR(found.st_mode) ? "mkdir -p '%s'" : "mkdir -p \"$(dirname '%s')\"; : > '%s'",
		 target, target);
	if (system(line) != 0 || mount(source, target, NULL, MS_BIND | MS_REC, NULL) != 0)
		return fail("mount", source);
	if (flags != NULL && strstr(flags, "ro") != NULL
	    && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
		return fail("mount read-only", source);
	return 0;
}

/* Into the container: before Slurm looks for the program and stops being root. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
	static const char *const always[] = {"/proc", "/sys", "/dev", "/tmp"};
	char path[PATH_MAX], *rest = given[MOUNTS], *entry;

	(void)spank, (void)count, (void)words;
	if (given[IMAGE] == NULL)
		return 0;
	if (!is_ready)
		return -1;
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return fail("make a mount namespace for", root);
	for (size_t one = 0; one < sizeof always / sizeof *always; one++) {
		snprintf(path, sizeof path, "%s%s", root, always[one]);
		if (mount(always[one], path, NULL, MS_BIND | MS_REC, NULL) != 0)
			return fail("mount", always[one]);
	}
	while (rest != NULL && (entry = strsep(&rest, ",")) != NULL)
		if (bind_mount(entry) != 0)
			return -1;
	return chroot(root) == 0 && chdir("/") == 0 ? 0 : fail("enter", root);
}

/* Slurm has entered the job's own folder meanwhile, by its name. */
int slurm_spank_task_init(spank_t spank, int count, char **words)
{
	(void)spank, (void)count, (void)words;
	if (given[IMAGE] == NULL || chdir(given[WORKDIR] ? given[WORKDIR] : "/") == 0)
		return 0;
	return fail("chdir to", given[WORKDIR]);
}

/* The mounts were the task's own, and are gone with it. */
int slurm_spank_exit(spank_t spank, int count, char **words)
{
	char line[2 * PATH_MAX];

	(void)count, (void)words;
	if (spank_remote(spank) != 1 || root[0] == '\0')
		return 0;
	snprintf(line, sizeof line, "rm -rf '%s'", root);
	return system(line) == 0 ? 0 : -1;
}

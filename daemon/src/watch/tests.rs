//! Watching real files: what counts as a change, and what does not.
//!
//! That nothing is told is shown without waiting: another change is made after it, and only that one
//! comes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use afresh_core::limits::{WATCH_DEPTH_MAX, WATCH_READ_BYTES_MAX};
use afresh_core::watch::reason;
use tokio::time::timeout;

use super::*;
use crate::store::TempDir;

const DEBOUNCE: Duration = Duration::from_millis(30);
const DEADLINE: Duration = Duration::from_secs(30);

/// A project that is watched.
struct Project {
    dir: TempDir,
    said: Arc<Mutex<Vec<String>>>,
}

impl Project {
    fn new() -> Self {
        let project = Self { dir: TempDir::new(), said: Arc::default() };
        fs::create_dir(project.path(".git")).unwrap();
        project.write("src/server.py", "1");
        project
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes beside, and renames, as editors do.
    fn replace(&self, path: &str, text: &str) {
        let beside = self.path("beside~");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(path)).unwrap();
    }

    fn start(
        &self,
        watched: Result<(FolderAlarms, Folders), WatchRefusal>,
        paths: &[&str],
    ) -> Watch {
        let said = self.said.clone();
        let say = move |text: &str| said.lock().unwrap().push(text.to_owned());
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        Watch::start_with(watched, &paths, &self.path(""), DEBOUNCE, say).unwrap()
    }

    /// Watches these, once the first look is over.
    async fn watch(&self, paths: &[&str]) -> Watch {
        let mut watch = self.start(watch_folders(), paths);
        settle(&mut watch).await;
        watch
    }

    /// What changed, from the project's folder.
    async fn changed(&self, watch: &mut Watch) -> Vec<String> {
        let changed = timeout(DEADLINE, watch.changed()).await.expect("a change is told");
        let base = self.path("");
        let short = |path: &PathBuf| path.strip_prefix(&base).unwrap_or(path).display().to_string();
        changed.iter().map(short).collect()
    }

    /// Makes one more change, and sees that it is the only one.
    async fn nothing_but(&self, watch: &mut Watch, path: &str) {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        self.write(path, &format!("the only change {count}"));
        assert_eq!(self.changed(watch).await, [path]);
    }
}

/// Waits until the look that is under way is over.
async fn settle(watch: &mut Watch) {
    while matches!(watch.look, ScanState::Running(_)) {
        let input = timeout(DEADLINE, watch.next()).await.expect("a look ends");
        assert_eq!(watch.handle(input), [] as [PathBuf; 0]);
    }
}

#[tokio::test]
async fn a_change_is_told_with_its_path() {
    let project = Project::new();
    let mut watch = project.watch(&["src"]).await;
    project.write("src/server.py", "2");
    let changed = timeout(DEADLINE, watch.changed()).await.unwrap();
    assert_eq!(reason(&changed, &project.path("")), "src/server.py changed");
    for name in ["a", "b", "c", "d"] {
        project.write(&format!("src/{name}.py"), "new");
    }
    let changed = timeout(DEADLINE, watch.changed()).await.unwrap();
    assert_eq!(reason(&changed, &project.path("")), "src/a.py and 3 more changed");
    fs::remove_file(project.path("src/b.py")).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["src/b.py"]);
}

#[tokio::test]
async fn what_is_in_a_file_counts_and_nothing_else() {
    let project = Project::new();
    project.write("src/other.py", "1");
    let mut watch = project.watch(&["src"]).await;
    let path = project.path("src/server.py");
    // Touched, its rights changed, saved without a change, and changed forth and back.
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    project.write("src/server.py", "1");
    project.replace("src/server.py", "1");
    project.write("src/server.py", "2");
    project.write("src/server.py", "1");
    project.nothing_but(&mut watch, "src/other.py").await;
    // The same length, and the same time.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    project.write("src/server.py", "3");
    fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["src/server.py"]);
}

#[tokio::test]
async fn large_files_are_told_by_their_length_and_time() {
    let project = Project::new();
    let path = project.path("src/model.bin");
    let file = fs::File::create(&path).unwrap();
    file.set_len(WATCH_READ_BYTES_MAX + 1).unwrap();
    let old = SystemTime::now() - Duration::from_secs(100);
    file.set_modified(old).unwrap();
    let mut watch = project.watch(&["src"]).await;
    file.set_len(WATCH_READ_BYTES_MAX + 2).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["src/model.bin"]);
}

#[tokio::test]
async fn a_file_may_be_named_be_missing_and_be_replaced() {
    let project = Project::new();
    let mut watch = project.watch(&["src/server.py", "later/deep/config.toml"]).await;
    project.replace("src/server.py", "2");
    assert_eq!(project.changed(&mut watch).await, ["src/server.py"]);
    // Others in the same folder do not matter, nor does the gap of one that is replaced slowly.
    project.write("src/other.py", "1");
    fs::remove_file(project.path("src/server.py")).unwrap();
    project.write("later/deep/config.toml", "1");
    assert_eq!(project.changed(&mut watch).await, ["later/deep/config.toml"]);
    project.write("src/server.py", "2");
    project.nothing_but(&mut watch, "later/deep/config.toml").await;
    project.write("src/server.py", "3");
    assert_eq!(project.changed(&mut watch).await, ["src/server.py"]);
}

#[tokio::test]
async fn whole_trees_may_be_replaced() {
    let project = Project::new();
    project.write("dist/lib/a.js", "1");
    project.write("dist/lib/b.js", "1");
    let mut watch = project.watch(&["dist", "src"]).await;
    // Removed and built again, with one file that differs.
    fs::remove_dir_all(project.path("dist")).unwrap();
    project.nothing_but(&mut watch, "src/server.py").await;
    project.write("dist/lib/a.js", "1");
    project.write("dist/lib/b.js", "2");
    assert_eq!(project.changed(&mut watch).await, ["dist/lib/b.js"]);
    // Replaced by renames, from a place that is not watched.
    project.write("next/lib/a.js", "3");
    project.write("next/lib/b.js", "2");
    fs::rename(project.path("dist"), project.path("old")).unwrap();
    fs::rename(project.path("next"), project.path("dist")).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["dist/lib/a.js"]);
    // The new one is watched, and the old one is not.
    project.write("old/lib/a.js", "4");
    project.nothing_but(&mut watch, "dist/lib/a.js").await;
}

#[tokio::test]
async fn a_folder_above_may_be_replaced() {
    let project = Project::new();
    project.write("app/one/two/a.py", "1");
    let mut watch = project.watch(&["app/one/two"]).await;
    fs::rename(project.path("app"), project.path("gone")).unwrap();
    project.write("app/one/two/a.py", "2");
    assert_eq!(project.changed(&mut watch).await, ["app/one/two/a.py"]);
    project.nothing_but(&mut watch, "app/one/two/a.py").await;
}

#[tokio::test]
async fn folders_that_come_later_are_watched_with_what_is_in_them() {
    let project = Project::new();
    let mut watch = project.watch(&["src"]).await;
    // All of it is there before anybody can watch it.
    project.write("src/new/deep/er/a.py", "1");
    assert_eq!(project.changed(&mut watch).await, ["src/new/deep/er/a.py"]);
    project.write("src/new/deep/er/b.py", "1");
    assert_eq!(project.changed(&mut watch).await, ["src/new/deep/er/b.py"]);
    // A folder that is moved takes its files along.
    fs::rename(project.path("src/new"), project.path("src/moved")).unwrap();
    let moved = ["src/moved/deep/er/a.py", "src/moved/deep/er/b.py"];
    let gone = ["src/new/deep/er/a.py", "src/new/deep/er/b.py"];
    assert_eq!(project.changed(&mut watch).await, [moved, gone].concat());
    project.nothing_but(&mut watch, "src/moved/deep/er/a.py").await;
    // And a folder may become a file.
    fs::remove_dir_all(project.path("src/moved")).unwrap();
    project.write("src/moved", "a file");
    let changed = project.changed(&mut watch).await;
    assert!(changed.contains(&"src/moved".to_owned()), "{changed:?}");
}

#[tokio::test]
async fn links_are_followed_where_they_are_named() {
    let project = Project::new();
    project.write("releases/1/a.py", "1");
    project.write("releases/2/a.py", "2");
    project.write("releases/3/a.py", "2");
    project.write("shared/settings.py", "1");
    symlink("releases/1", project.path("current")).unwrap();
    symlink("../shared/settings.py", project.path("src/settings.py")).unwrap();
    symlink("..", project.path("src/loop")).unwrap();
    let mut watch = project.watch(&["current", "src", "src/settings.py"]).await;
    let switch = |to: &str| {
        symlink(to, project.path("next")).unwrap();
        fs::rename(project.path("next"), project.path("current")).unwrap();
    };
    project.write("releases/1/a.py", "1.1");
    assert_eq!(project.changed(&mut watch).await, ["current/a.py"]);
    switch("releases/2");
    assert_eq!(project.changed(&mut watch).await, ["current/a.py"]);
    // The old one does not matter any more, and the next has the same in it.
    project.write("releases/1/a.py", "1.2");
    switch("releases/3");
    project.write("shared/settings.py", "2");
    assert_eq!(project.changed(&mut watch).await, ["src/settings.py"]);
    // Elsewhere a link counts by where it leads.
    fs::remove_file(project.path("src/loop")).unwrap();
    symlink("../releases", project.path("src/loop")).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["src/loop"]);
}

#[tokio::test]
async fn what_the_project_ignores_is_not_watched() {
    let project = Project::new();
    project.write(".gitignore", "/build/\n*.log\n!keep.log\n");
    project.write(".ignore", "data\n");
    project.write(".git/info/exclude", "mine.txt\n");
    project.write("src/.gitignore", "generated.py\n");
    for folder in ["build", "data", "node_modules/x", "src/__pycache__", "src/generated.py"] {
        fs::create_dir_all(project.path(folder)).unwrap();
    }
    let mut watch = project.watch(&["."]).await;
    let ignored = [
        "build/a",
        "data/a",
        "a.log",
        "src/a.log",
        "mine.txt",
        "src/generated.py/a",
        "node_modules/x/a",
        "src/__pycache__/a.pyc",
        ".git/index",
        ".afresh/audit.jsonl",
        "src/server.py~",
        "src/.#server.py",
        "src/.server.py.swp",
        "src/4913",
        "src/new/node_modules/a",
    ];
    for path in ignored {
        project.write(path, "ignored");
    }
    project.nothing_but(&mut watch, "src/server.py").await;
    project.write("src/keep.log", "1");
    assert_eq!(project.changed(&mut watch).await, ["src/keep.log"]);
    // New rules hold at once; they themselves are no change.
    project.write(".gitignore", "/build/\n*.txt\n");
    project.write("src/a.txt", "1");
    let changed = project.changed(&mut watch).await;
    assert_eq!(changed, ["a.log", "src/a.log"], "these are watched now");
    project.write("src/a.txt", "2");
    project.nothing_but(&mut watch, "src/a.log").await;
}

#[tokio::test]
async fn what_is_named_is_watched_even_if_it_is_ignored() {
    let project = Project::new();
    project.write(".gitignore", "/dist/\nout/*\n.env\n*.map\n");
    project.write("lib/.gitignore", "*\n");
    for path in ["dist/a.js", "out/a.js", "lib/a.js", ".env", "src/a.map", "node_modules/x/a.js"] {
        project.write(path, "1");
    }
    let mut watch = project.watch(&["dist", "out", "lib", ".env", "src", "node_modules/x"]).await;
    for path in ["dist/a.js", "out/a.js", "lib/a.js", ".env", "dist/a.map", "node_modules/x/a.js"] {
        project.write("src/a.map", path);
        project.nothing_but(&mut watch, path).await;
    }
}

#[tokio::test]
async fn what_is_named_may_lie_in_what_is_named() {
    let project = Project::new();
    project.write(".gitignore", "/pkg/dist\n");
    project.write("pkg/lib/.gitignore", "*\n");
    for path in ["pkg/dist/a.js", "pkg/lib/a.js", "pkg/b.js"] {
        project.write(path, "1");
    }
    symlink("pkg/lib", project.path("link")).unwrap();
    let mut watch = project.watch(&[".", "pkg/dist", "pkg/lib", "src", "src/server.py"]).await;
    let paths = ["pkg/dist/a.js", "pkg/lib/a.js", "pkg/b.js", "src/server.py", "src/new.py"];
    for path in paths {
        project.nothing_but(&mut watch, path).await;
    }
    // The folder around them is replaced by one in which all but one file is the same.
    let again = |path: &str| fs::read_to_string(project.path(path)).unwrap();
    for path in &paths[..2] {
        project.write(&path.replace("pkg/", "next/"), &again(path));
    }
    project.write("next/lib/.gitignore", "*\n");
    project.write("next/b.js", "2");
    fs::rename(project.path("pkg"), project.path("src/node_modules")).unwrap();
    fs::rename(project.path("next"), project.path("pkg")).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["pkg/b.js"]);
    for path in paths {
        project.nothing_but(&mut watch, path).await;
    }
}

#[tokio::test]
async fn a_burst_is_told_once_and_a_flood_in_the_end() {
    let project = Project::new();
    let mut watch = project.watch(&["src"]).await;
    // More than the kernel keeps while nobody reads: what comes last is lost.
    let mut files = ["src/a", "src/b"].map(|path| fs::File::create(project.path(path)).unwrap());
    for _ in 0..20_000 {
        for file in &mut files {
            file.write_all(b"x").unwrap();
        }
    }
    project.write("src/server.py", "2");
    assert_eq!(project.changed(&mut watch).await, ["src/a", "src/b", "src/server.py"]);
    project.nothing_but(&mut watch, "src/a").await;
}

#[tokio::test]
async fn a_tree_that_is_never_quiet_is_told_in_time() {
    // A busy machine can pause this test for longer than the debounce, and then the tree was quiet: try again.
    for _ in 0..100 {
        let project = Project::new();
        let mut watch = project.watch(&["src"]).await;
        let mut number = 0;
        let changed = loop {
            number += 1;
            project.write("src/server.py", &format!("{number}!"));
            // Dropped in the middle of it, again and again: nothing gets lost by that.
            if let Ok(changed) = timeout(DEBOUNCE / 3, watch.changed()).await {
                break changed;
            }
            assert!(number < 3_000, "it is told in time");
        };
        assert_eq!(changed, [project.path("src/server.py")]);
        if number > 2 {
            return;
        }
    }
    panic!("the tree was quiet each time");
}

#[tokio::test]
async fn what_changes_while_the_first_look_lasts_is_told() {
    let project = Project::new();
    let mut watch = project.start(watch_folders(), &["src"]);
    // The kernel stamps files with the time of its last tick, which can be before the start.
    let later = SystemTime::now() + Duration::from_millis(1);
    project.write("beside~", "2");
    let file = fs::File::options().append(true).open(project.path("beside~")).unwrap();
    file.set_modified(later).unwrap();
    fs::rename(project.path("beside~"), project.path("src/server.py")).unwrap();
    assert_eq!(project.changed(&mut watch).await, ["src/server.py"]);
}

#[tokio::test]
async fn where_the_kernel_watches_nothing_files_are_looked_at() {
    let project = Project::new();
    let hint = "run `sudo sysctl`".to_owned();
    let refusal = WatchRefusal::Limit { what: "no more", hint };
    let mut watch = project.start(Err(refusal), &["src"]);
    settle(&mut watch).await;
    project.write("src/server.py", "2");
    assert_eq!(project.changed(&mut watch).await, ["src/server.py"]);
    project.nothing_but(&mut watch, "src/new.py").await;
    let said = project.said.lock().unwrap().clone();
    let wanted =
        "all watched files are looked at every 2 s instead: no more: run `sudo sysctl`".to_owned();
    assert_eq!(said, [wanted], "it is said once");
}

#[tokio::test]
async fn strange_files_are_passed_over() {
    let project = Project::new();
    nix::unistd::mkfifo(&project.path("src/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("fifo", project.path("src/to-fifo")).unwrap();
    symlink("to-itself", project.path("src/to-itself")).unwrap();
    nix::unistd::mkfifo(&project.path("src/.gitignore"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(project.path("src/socket")).unwrap();
    let mut watch = project.watch(&["src", "src/fifo", "src/to-itself", "/dev/null"]).await;
    project.nothing_but(&mut watch, "src/server.py").await;
    assert_eq!(project.said.lock().unwrap().as_slice(), [] as [String; 0]);
    let mut deep = "src".to_owned();
    for _ in 0..80 {
        deep.push_str("/d");
        project.write(&format!("{deep}/a.py"), "1");
    }
    let changed = project.changed(&mut watch).await;
    assert_eq!(changed.len(), WATCH_DEPTH_MAX);
    project.nothing_but(&mut watch, "src/d/a.py").await;
    let said = project.said.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "it is said once: {said:?}");
    assert!(said[0].starts_with("folders more than 64 deep are not watched"), "{said:?}");
}

#[tokio::test]
async fn one_of_several_working_trees_has_the_rules_of_all() {
    let project = Project::new();
    project.write(".git/info/exclude", "mine.txt\n");
    project.write(".git/worktrees/two/commondir", "../..\n");
    project.write("two/.git", "gitdir: ../.git/worktrees/two\n");
    project.write("two/a.py", "1");
    let mut watch = project.watch(&["two"]).await;
    project.write("two/mine.txt", "1");
    project.nothing_but(&mut watch, "two/a.py").await;
}

#[tokio::test]
async fn without_a_repository_the_rules_of_our_folder_hold() {
    let project = Project::new();
    fs::remove_dir_all(project.path(".git")).unwrap();
    project.write(".gitignore", "*.txt\n");
    let mut watch = project.watch(&["src"]).await;
    project.write("src/a.txt", "1");
    project.nothing_but(&mut watch, "src/server.py").await;
}

#[tokio::test]
async fn what_cannot_be_a_path_is_refused() {
    let base = Path::new("/");
    let refused = Watch::start(&[PathBuf::new()], base, DEBOUNCE, |_| {});
    assert_eq!(refused.err().unwrap().to_string(), "`` cannot be watched");
}

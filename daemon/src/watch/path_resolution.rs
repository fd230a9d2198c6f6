//! Resolves a watched path: the folders and links that it leads through, and its end.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many links in a row as the kernel follows.
const LINKS_MAX: usize = 40;

/// The way to a path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// The folders that it leads through, without links.
    pub(super) folders: Vec<PathBuf>,
    /// The names that decide where it ends, each with its folder: links, the last one, or the first
    /// that is not there.
    pub(super) signs: Vec<(PathBuf, OsString)>,
    /// Its end; none where there is no file.
    pub(super) end: Option<PathBuf>,
}

impl Route {
    /// Follows an absolute path.
    pub(super) fn to(path: &Path) -> Self {
        let mut route = Self::default();
        let mut place = PathBuf::new();
        let mut links = 0;
        let mut parts: VecDeque<OsString> = split(path).collect();
        while let Some(part) = parts.pop_front() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let next = place.join(name);
                    let found = fs::symlink_metadata(&next);
                    let is_link = found.as_ref().is_ok_and(fs::Metadata::is_symlink);
                    route.pass(&place, name, is_link || found.is_err() || parts.is_empty());
                    if found.is_err() {
                        return route;
                    }
                    if !is_link {
                        place = next;
                        continue;
                    }
                    links += 1;
                    let Ok(target) = fs::read_link(&next) else { return route };
                    if links > LINKS_MAX {
                        return route;
                    }
                    for part in split(&target).collect::<Vec<_>>().into_iter().rev() {
                        parts.push_front(part);
                    }
                }
                Some(Component::ParentDir) => {
                    place.pop();
                }
                Some(Component::CurDir) | None => {}
                // A root or a drive: what came before does not count.
                Some(start) => place.push(start),
            }
        }
        route.end = Some(place);
        route
    }

    fn pass(&mut self, folder: &Path, name: &OsStr, decides: bool) {
        if !self.folders.iter().any(|known| known == folder) {
            self.folders.push(folder.to_owned());
        }
        if decides {
            self.signs.push((folder.to_owned(), name.to_owned()));
        }
    }
}

fn split(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}

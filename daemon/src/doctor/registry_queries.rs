//! Owns the queries to package registries whether they have a version of afresh that a client's configuration names.
//! Driven by `doctor`. The package manager that is installed asks, with the user's own settings: it runs in the home
//! folder, since a project's `.npmrc` may name any registry and have it sent any variable. Installs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::duration::show_duration;
use afresh_core::limits::{
    PINNED_VERSION_CHARS_MAX, REGISTRY_QUERIES_MAX, REGISTRY_QUERY_MAX, REGISTRY_REQUEST_MAX,
    VERSION_BYTES_MAX,
};
use afresh_core::service::Exit;
use serde_json::Value;

use super::{Examined, first_line};
use crate::os::{HOME_VARIABLE, is_variable};
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome};

/// A program that can ask a registry for a version without installing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PackageManager {
    Npm,
    Bun,
    Uv,
}

/// What a registry has of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// It has the version.
    Published,
    /// It does not.
    Gone,
    /// No answer was obtained, and why.
    Unknown(String),
}

/// A version, and the runner by which a client gets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PinnedVersion {
    pub(super) runner: String,
    pub(super) version: String,
}

/// The queries of one `doctor`, each made once however many servers share it.
#[derive(Debug, Default)]
pub(super) struct RegistryQueries {
    queries: Vec<(PackageManager, String)>,
    pins: BTreeMap<PinnedVersion, Result<usize, String>>,
}

impl RegistryQueries {
    /// What to ask for these versions, and the commands that ask, in the same order.
    pub(super) fn plan(pins: BTreeSet<PinnedVersion>, examined: &Examined) -> (Self, Vec<Brief>) {
        let mut planned = Self::default();
        let mut briefs = Vec::new();
        for pin in pins {
            let query = planned.add(&pin, examined, &mut briefs);
            planned.pins.insert(pin, query);
        }
        (planned, briefs)
    }

    /// The place of a version's query, or why there is none.
    fn add(
        &mut self,
        pin: &PinnedVersion,
        examined: &Examined,
        briefs: &mut Vec<Brief>,
    ) -> Result<usize, String> {
        if !is_plain_version(&pin.version) {
            return Err("it is not written as a version".to_owned());
        }
        let (manager, path) = PackageManager::find(&pin.runner, examined)?;
        let query = (manager, pin.version.clone());
        if let Some(at) = self.queries.iter().position(|asked| *asked == query) {
            return Ok(at);
        }
        if self.queries.len() == REGISTRY_QUERIES_MAX {
            return Err(format!("{REGISTRY_QUERIES_MAX} others are asked for already"));
        }
        let home = examined.variable(HOME_VARIABLE).map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute() && home.is_dir());
        let home = home.ok_or_else(|| format!("{HOME_VARIABLE} is not a folder"))?;
        briefs.push(manager.query(path, &pin.version, home, examined));
        self.queries.push(query);
        Ok(self.queries.len() - 1)
    }

    /// The answers, from the outcomes of the commands in their order.
    pub(super) fn answers(self, outcomes: &[BriefOutcome]) -> BTreeMap<PinnedVersion, Publication> {
        let answer = |query: Result<usize, String>| match query {
            Err(why) => Publication::Unknown(why),
            Ok(at) => {
                let (manager, version) = &self.queries[at];
                let outcome = outcomes.get(at);
                let lost = || Publication::Unknown("the command was not run".to_owned());
                outcome.map_or_else(lost, |outcome| manager.read(version, outcome))
            }
        };
        self.pins.into_iter().map(|(pin, query)| (pin, answer(query))).collect()
    }
}

impl PackageManager {
    /// The one on PATH that knows the registry of a runner.
    fn find(runner: &str, examined: &Examined) -> Result<(Self, PathBuf), String> {
        let name = runner.rsplit(['/', '\\']).next().unwrap_or(runner).to_ascii_lowercase();
        let managers: &[Self] = match name.split('.').next().unwrap_or_default() {
            "npx" | "npm" | "pnpm" | "yarn" => &[Self::Npm],
            "bunx" | "bun" => &[Self::Bun, Self::Npm],
            "uvx" | "uv" => &[Self::Uv],
            other => return Err(format!("`{other}` has no command for it")),
        };
        let on_path = |manager: &Self| Some((*manager, examined.program(manager.program())?));
        let missing = || format!("`{}` is not on PATH", managers[0].program());
        managers.iter().find_map(on_path).ok_or_else(missing)
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Bun => "bun",
            Self::Uv => "uv",
        }
    }

    /// The command that asks for a version. It gives up before it would be ended, so that it can say why.
    fn query(self, path: PathBuf, version: &str, home: PathBuf, examined: &Examined) -> Brief {
        let (millis, seconds) = (REGISTRY_REQUEST_MAX.as_millis(), REGISTRY_REQUEST_MAX.as_secs());
        let package = format!("afresh@{version}");
        let words: Vec<String> = match self {
            Self::Npm => [
                "view",
                &package,
                "version",
                "--json",
                "--prefer-online",
                "--fetch-retries=0",
                &format!("--fetch-timeout={millis}"),
                "--logs-max=0",
                "--update-notifier=false",
                "--loglevel=error",
            ]
            .map(str::to_owned)
            .into(),
            Self::Bun => ["info", &package, "version", "--json"].map(str::to_owned).into(),
            // uv has no command that looks a version up. It resolves a requirement that nothing but this version meets,
            // without what that would depend on, and without building a package.
            Self::Uv => {
                ["pip", "compile", "-", "--no-deps", "--no-build", "--no-cache", "--no-header"]
                    .map(str::to_owned)
                    .into()
            }
        };
        let settings: &[(&str, String)] = match self {
            Self::Npm | Self::Bun => &[("NO_COLOR", "1".to_owned())],
            Self::Uv => &[
                ("NO_COLOR", "1".to_owned()),
                ("UV_HTTP_RETRIES", "0".to_owned()),
                ("UV_HTTP_TIMEOUT", seconds.to_string()),
                ("UV_NO_PROGRESS", "1".to_owned()),
                ("UV_PYTHON_DOWNLOADS", "never".to_owned()),
            ],
        };
        let is_set = |key: &OsString| settings.iter().any(|(name, _)| is_variable(key, name));
        let inherited = examined.variables.iter().filter(|(key, _)| !is_set(key)).cloned();
        let own = settings.iter().map(|(name, value)| (OsString::from(name), value.into()));
        Brief {
            command: Command {
                argv: [path.into()].into_iter().chain(words.into_iter().map(Into::into)).collect(),
                cwd: Some(home),
                env: inherited.chain(own).collect(),
            },
            stdin: match self {
                Self::Npm | Self::Bun => Vec::new(),
                Self::Uv => format!("afresh=={version}\n").into_bytes(),
            },
            time_max: REGISTRY_QUERY_MAX,
            output_bytes_max: VERSION_BYTES_MAX,
        }
    }

    /// What the end of a command says about its version.
    fn read(self, version: &str, outcome: &BriefOutcome) -> Publication {
        let program = self.program();
        let is_success = match &outcome.ending {
            BriefEnding::Exited(exit) => *exit == Exit::Code(0),
            BriefEnding::SpawnFailed(failure) => {
                return Publication::Unknown(failure.message.clone());
            }
            BriefEnding::TimedOut => {
                let time = show_duration(REGISTRY_QUERY_MAX);
                return Publication::Unknown(format!("`{program}` had no answer after {time}"));
            }
            BriefEnding::TooMuchOutput => {
                return Publication::Unknown(format!("`{program}` does not stop printing"));
            }
        };
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        let json = serde_json::from_str::<Value>(&stdout).unwrap_or_default();
        let is_gone = match self {
            // Before npm 10, an unknown version of a known package was a success without a word.
            Self::Npm if is_success => stdout.trim().is_empty(),
            Self::Npm => json["error"]["code"] == "E404" || stderr.contains("E404"),
            Self::Bun => {
                json["error"] == "No matching version found" || stderr.contains("404 Not Found")
            }
            // uv wraps its lines.
            Self::Uv => {
                let words: Vec<&str> = stderr.split_whitespace().collect();
                let said = words.join(" ");
                said.contains(&format!("there is no version of afresh=={version} "))
                    || said.contains("afresh was not found in the package registry")
            }
        };
        let is_published = match self {
            Self::Npm | Self::Bun => json.is_string() || json.is_array(),
            Self::Uv => stdout.lines().any(|line| line.trim() == format!("afresh=={version}")),
        };
        if is_gone {
            return Publication::Gone;
        }
        if is_success && is_published {
            return Publication::Published;
        }
        let summary = json["error"]["summary"].as_str().unwrap_or_default();
        let said = [summary.as_bytes(), &outcome.stderr, &outcome.stdout];
        let said = said.into_iter().find_map(first_line);
        let said = said.unwrap_or_else(|| format!("`{program}` does not say"));
        Publication::Unknown(said)
    }
}

/// Whether a version is one word that is no option: it comes from a file, and becomes a part of a command line.
fn is_plain_version(version: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '+'].contains(&c);
    version.len() <= PINNED_VERSION_CHARS_MAX && version.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Remains;

    fn outcome(code: i32, stdout: &str, stderr: &str) -> BriefOutcome {
        BriefOutcome {
            ending: BriefEnding::Exited(Exit::Code(code)),
            stdout: stdout.into(),
            stderr: stderr.into(),
            remains: Remains::default(),
            took: std::time::Duration::ZERO,
        }
    }

    /// As npm 6 to 11, Bun 1.4 and uv 0.2 to 0.13 print them.
    #[test]
    fn answers_are_read_as_each_package_manager_gives_them() {
        use PackageManager::{Bun, Npm, Uv};
        use Publication::{Gone, Published};
        let error = |code: &str| format!(r#"{{"error": {{"code": "{code}", "summary": "why"}}}}"#);
        let unknown = |why: &str| Publication::Unknown(why.to_owned());
        let none = "error: No solution found when resolving dependencies\n  cause: Because ";
        let cases = [
            (Npm, 0, "\"0.1.0\"\n", "", Published),
            (Npm, 0, "", "", Gone),
            (Npm, 1, &error("E404"), "npm error code E404", Gone),
            (Npm, 1, "", "npm ERR! code E404\nnpm ERR! 404 Not Found", Gone),
            (Npm, 1, &error("ECONNREFUSED"), "npm error", unknown("why")),
            (Npm, 1, "", "", unknown("`npm` does not say")),
            (Npm, 0, "<html>", "", unknown("<html>")),
            (Bun, 0, "\"0.1.0\"\n", "", Published),
            (Bun, 1, r#"{ "error": "No matching version found" }"#, "", Gone),
            (Bun, 1, "", "\n404 Not Found: https://registry/afresh\n", Gone),
            (Bun, 1, "", "ConnectionRefused: failed", unknown("ConnectionRefused: failed")),
            (Uv, 0, "afresh==0.1.0\n", "", Published),
            (Uv, 1, "", &format!("{none}there is no version of\n  afresh==0.1.0 and you"), Gone),
            (
                Uv,
                1,
                "",
                &format!("{none}afresh was not found in the package registry and you"),
                Gone,
            ),
            (Uv, 2, "", "error: Request failed\n  cause: x", unknown("error: Request failed")),
        ];
        for (manager, code, stdout, stderr, expected) in cases {
            let read = manager.read("0.1.0", &outcome(code, stdout, stderr));
            assert_eq!(read, expected, "{manager:?} {stdout} {stderr}");
        }
    }

    #[test]
    fn a_version_is_one_word() {
        for version in ["0.2.0", "1.0.0-rc.1+linux"] {
            assert!(is_plain_version(version), "{version}");
        }
        for version in ["0.2.0-a b", "0.2.0-\"&calc", &format!("0.2.0-{}", "1".repeat(80))] {
            assert!(!is_plain_version(version), "{version}");
        }
    }
}

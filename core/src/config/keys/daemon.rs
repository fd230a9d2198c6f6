//! Owns the keys of `[daemon]`.

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::definition::OnSupervisorDeath;

words! {
    OnSupervisorDeath { "kill" => Kill, "keep" => Keep, }
}

keys! {
    DAEMON of "daemon";

    /// What becomes of the services when `afresh up` itself is killed: `kill` ends them with it, `keep` lets them
    /// run, and the next `afresh up` takes them over.
    ON_SUPERVISOR_DEATH: Setting<OnSupervisorDeath> = key("on_supervisor_death", word::<OnSupervisorDeath>())
        .default("kill");
    /// Where the control API also listens, beside its socket: `127.0.0.1:PORT` or `[::1]:PORT`. Empty is nowhere;
    /// addresses that others can reach are refused.
    LISTEN: Setting<String> = key("listen", Kind::Listen).default("");
}

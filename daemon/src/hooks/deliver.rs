//! Sends one delivery to one hook: as a request, a command or a desktop notification. Driven by the dispatcher of
//! `hooks`. Never retries.

use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::audit::redact::excerpt;
use afresh_core::hook::{
    About, Delivery, DeliveryFailure, HookDefinition, HookTarget, Message, Shape,
};
use afresh_core::limits::{
    HOOK_ANSWER_BYTES_MAX, HOOK_COMMAND_BYTES_MAX, HOOK_COMMAND_WAIT, HOOK_REQUEST_WAIT,
};
use afresh_core::service::Exit;
use afresh_core::time::show_duration;

use super::HookSetup;
use crate::error_chain::chain;
use crate::http::{HttpClient, HttpError, Limits, Request};
use crate::os;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner};

/// What deliveries are made with.
pub(super) struct DeliverySender {
    about: About,
    client: HttpClient,
    briefs: BriefRunner,
    cwd: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl DeliverySender {
    pub(super) fn new(setup: HookSetup, briefs: BriefRunner) -> Self {
        let (about, client) = (setup.about(), setup.client());
        Self { about, client, briefs, cwd: setup.cwd, env: setup.env }
    }

    /// Tells it, once.
    pub(super) async fn deliver(
        &self,
        definition: &HookDefinition,
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        match &definition.target {
            HookTarget::Webhook { url, shape, headers } => {
                self.send(url, *shape, headers, delivery).await
            }
            HookTarget::Command(argv) => {
                let argv = argv.iter().map(OsString::from).collect();
                let body = delivery.to_json(&self.about);
                self.run(argv, format!("{body}\n"), delivery).await
            }
            HookTarget::Desktop => {
                let (title, text) = delivery.notification(&self.about);
                match os::notification(&title, &text) {
                    Some(argv) => self.run(argv, String::new(), delivery).await,
                    None => Err(never("there are no desktop notifications on this system yet")),
                }
            }
        }
    }

    async fn send(
        &self,
        url: &str,
        shape: Shape,
        own_headers: &[(String, String)],
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        let Message { headers, body } = delivery.message(shape, &self.about);
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value));
        // The user's come last, and win.
        let headers: Vec<(String, String)> = headers.chain(own_headers.iter().cloned()).collect();
        let request = Request { method: "POST", url, headers: &headers, body };
        let limits = Limits { time_max: HOOK_REQUEST_WAIT, body_bytes_max: HOOK_ANSWER_BYTES_MAX };
        match self.client.request(request, limits).await {
            Ok(answer) => DeliveryFailure::of_answer(
                answer.status,
                answer.header("retry-after"),
                &answer.body,
            ),
            Err(error) => {
                let hopeless = matches!(error, HttpError::Url(_) | HttpError::Header(_));
                Err(DeliveryFailure { why: chain(&error), again: !hopeless, after: None })
            }
        }
    }

    async fn run(
        &self,
        argv: Vec<OsString>,
        stdin: String,
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        if argv.is_empty() {
            return Err(never("its command is empty"));
        }
        let mut env = self.env.clone();
        let happening = &delivery.happening;
        for (name, value) in
            [("AFRESH_EVENT", happening.event.name()), ("AFRESH_SERVICE", &happening.service)]
        {
            env.retain(|(other, _)| other != name);
            env.push((name.into(), value.into()));
        }
        let brief = Brief {
            command: Command { argv, cwd: Some(self.cwd.clone()), env },
            stdin: stdin.into_bytes(),
            time_max: HOOK_COMMAND_WAIT,
            output_bytes_max: HOOK_COMMAND_BYTES_MAX,
        };
        match self.briefs.run(brief).await {
            Some(outcome) => judge(&outcome),
            None => Err(never("afresh ends")),
        }
    }
}

fn judge(outcome: &BriefOutcome) -> Result<(), DeliveryFailure> {
    let again = |why: String| DeliveryFailure { why, again: true, after: None };
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => Ok(()),
        BriefEnding::Exited(exit) => {
            let said = if outcome.stderr.is_empty() { &outcome.stdout } else { &outcome.stderr };
            let said = excerpt(said);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            Err(again(format!("its command {exit}{said}")))
        }
        BriefEnding::SpawnFailed(failure) => Err(DeliveryFailure {
            why: failure.message.clone(),
            again: !failure.permanent,
            after: None,
        }),
        BriefEnding::TimedOut => {
            let limit = show_duration(HOOK_COMMAND_WAIT);
            Err(again(format!("its command has not ended within {limit}, and was ended")))
        }
        BriefEnding::TooMuchOutput => Err(never("its command prints too much, and was ended")),
    }
}

fn never(why: &str) -> DeliveryFailure {
    DeliveryFailure { why: why.to_owned(), again: false, after: None }
}

//! Owns the signatures of session ids, by which sessions go on after a restart of the gateway, and the list of those that
//! have ended and stay so. Connections sign and check, the loop notes ends. Never makes the loop wait for the disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use afresh_core::gateway::http::{SessionClaim, SessionId, SessionText};
use afresh_core::limits::{ENDED_SESSIONS_MAX, SESSION_END_WAIT, SESSION_RESUMABLE_FOR};
use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::clock::now;
use crate::error_chain::chain;
use crate::os;
use crate::output::Output;
use crate::store::digest::hex;
use crate::store::user_state::{StateFile, UserState, UserStateError};

/// What is stored for all gateways of a user.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SessionFile {
    /// The key of the signatures, in hexadecimal digits.
    key: String,
    /// Sessions that have ended before their ids expire, and when that was, in seconds since 1970.
    ended: BTreeMap<String, u64>,
}

impl StateFile for SessionFile {
    const NAME: &'static str = "sessions.json";
    const VERSION: u64 = 1;
}

/// The key of the signatures; without one nothing is signed, and no id opens a session. Clones are the same.
#[derive(Clone)]
pub(crate) struct SessionSigner(Arc<RwLock<Option<hmac::Key>>>);

impl SessionSigner {
    fn new(key: Option<&str>) -> Self {
        Self(Arc::new(RwLock::new(key.and_then(hmac_key))))
    }

    fn key(&self) -> Option<hmac::Key> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_key(&self, key: Option<&str>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key.and_then(hmac_key);
    }

    /// The id of a session that a client opens by this line; its bare name where the client says too much.
    pub(super) fn sign(
        &self,
        session: SessionId,
        line: &[u8],
        authorization: Option<&str>,
    ) -> String {
        let signed = || {
            let key = self.key()?;
            let binding = binding(&key, authorization);
            let signed =
                SessionClaim::of_initialize(line, unix_now(), binding)?.to_text(session)?;
            let signature = hex(hmac::sign(&key, signed.as_bytes()).as_ref());
            Some(format!("{signed}.{signature}"))
        };
        signed().unwrap_or_else(|| session.to_string())
    }

    /// The parameters by which a session can be opened anew, where its id is ours, of this token, and not too old.
    fn verify(&self, text: &str, authorization: Option<&str>) -> Option<Vec<u8>> {
        let key = self.key()?;
        let SessionText { signed, signature } = SessionText::parse(text)?;
        hmac::verify(&key, signed.as_bytes(), &unhex(signature)?).ok()?;
        let claim = SessionClaim::parse(signed)?;
        let age = unix_now().checked_sub(claim.issued)?;
        let is_valid =
            age < SESSION_RESUMABLE_FOR.as_secs() && claim.binding == binding(&key, authorization);
        is_valid.then_some(claim.params)
    }
}

/// Sessions that have ended, in memory and in the user's file.
pub(crate) struct EndedSessions {
    signer: SessionSigner,
    ended: BTreeMap<String, u64>,
    /// None where there is no file.
    writer: Option<EndsWriter>,
}

/// The thread that writes ends down.
struct EndsWriter {
    ended: SyncSender<(u64, String)>,
    /// Where all ids are to be void, the number of the end that leads to it, else 0. Apart from the queue, which may be
    /// full.
    voids_all: Arc<AtomicU64>,
    /// The number of the last end.
    last: u64,
    /// The number of the last end that was written, or that could not be.
    written: watch::Receiver<u64>,
    late: Arc<LateEnds>,
    thread: JoinHandle<()>,
}

/// Says in the log that the disk is slow: once, until it is not.
struct LateEnds {
    log: Option<Output>,
    is_told: AtomicBool,
}

/// The end of a session that may not be on disk yet.
#[derive(Clone)]
pub(crate) struct StoredEnd {
    number: u64,
    written: watch::Receiver<u64>,
    late: Arc<LateEnds>,
}

impl StoredEnd {
    /// Waits until it is on disk, or the disk has failed or takes too long: the log says that.
    pub(super) async fn stored(mut self) {
        let number = self.number;
        let stored = self.written.wait_for(|written| *written >= number);
        if timeout(SESSION_END_WAIT, stored).await.is_ok() {
            self.late.is_told.store(false, Ordering::Relaxed);
        } else if !self.late.is_told.swap(true, Ordering::Relaxed)
            && let Some(log) = &self.late.log
        {
            let seconds = SESSION_END_WAIT.as_secs();
            log.log(&format!(
                "the disk is slow: the end of a session was answered after {seconds} s and is not stored yet; the session \
                 comes back if this gateway is killed now"
            ));
        }
    }
}

impl EndedSessions {
    /// Reads what is stored, and makes a key where there is none. Without a file, sessions end with the gateway: then the
    /// text says why.
    pub(crate) fn open(state: Option<UserState>, log: Option<Output>) -> (Self, Option<String>) {
        let mut problem = None;
        let stored = state.as_ref().and_then(|state| {
            let made = state.change(|file: &mut SessionFile| {
                if hmac_key(&file.key).is_none() {
                    *file = SessionFile { key: new_key()?, ended: BTreeMap::new() };
                }
                forget_expired(&mut file.ended);
                Some((file.key.clone(), file.ended.clone()))
            });
            made.map_err(|error| problem = Some(chain(&error))).ok().flatten()
        });
        let state = state.filter(|_| stored.is_some());
        let (key, ended) = stored.map_or_else(Default::default, |(key, its)| (Some(key), its));
        let signer = SessionSigner::new(key.or_else(new_key).as_deref());
        let writer = state.map(|state| {
            let (sender, ends) = sync_channel::<(u64, String)>(ENDED_SESSIONS_MAX);
            let signer = signer.clone();
            let voids_all = Arc::new(AtomicU64::new(0));
            let voids = Arc::clone(&voids_all);
            let (progress, written) = watch::channel(0);
            let late = Arc::new(LateEnds { log: log.clone(), is_told: AtomicBool::new(false) });
            let thread = std::thread::spawn(move || {
                let mut is_told = false;
                while let Ok(first) = ends.recv() {
                    let (numbers, all): (Vec<u64>, Vec<String>) =
                        [first].into_iter().chain(ends.try_iter()).unzip();
                    let voids_all = voids.swap(0, Ordering::Relaxed);
                    let last = numbers.into_iter().fold(voids_all, u64::max);
                    if let Err(error) = write(&state, &signer, all, voids_all > 0) {
                        voids.fetch_max(voids_all, Ordering::Relaxed);
                        if !std::mem::replace(&mut is_told, true)
                            && let Some(log) = &log
                        {
                            let why = chain(&error);
                            log.log(&format!(
                                "sessions that end can come back after a restart: {why}"
                            ));
                        }
                    }
                    progress.send_if_modified(|before| {
                        let is_more = *before < last;
                        *before = last.max(*before);
                        is_more
                    });
                }
            });
            EndsWriter { ended: sender, voids_all, last: 0, written, late, thread }
        });
        (Self { signer, ended, writer }, problem)
    }

    pub(super) fn signer(&self) -> SessionSigner {
        self.signer.clone()
    }

    /// The parameters by which a session can be opened anew; none where it has ended, or its id is not good for it.
    pub(super) fn resumable(&self, text: &str, authorization: Option<&str>) -> Option<Vec<u8>> {
        if self.contains(text) {
            return None;
        }
        self.signer.verify(text, authorization)
    }

    /// Whether a session has ended.
    fn contains(&self, text: &str) -> bool {
        self.ended.contains_key(name_of(text))
    }

    /// A session has ended, for good. Returns what is to be waited for before its client is told.
    pub(super) fn note(&mut self, session: SessionId) -> Option<StoredEnd> {
        if let Some(writer) = &mut self.writer {
            writer.last += 1;
        }
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            forget_expired(&mut self.ended);
        }
        if self.ended.len() >= ENDED_SESSIONS_MAX {
            // No id that was issued so far opens a session any more.
            self.ended.clear();
            self.renew_key();
        }
        self.ended.insert(session.to_string(), unix_now());
        let EndsWriter { ended, last, .. } = self.writer.as_ref()?;
        if let Err(TrySendError::Full(_)) = ended.try_send((*last, session.to_string())) {
            // It could come back after a restart.
            self.renew_key();
        }
        let EndsWriter { last: number, written, late, .. } = self.writer.as_ref()?;
        Some(StoredEnd { number: *number, written: written.clone(), late: Arc::clone(late) })
    }

    /// Voids all ids, also after a restart: the thread stores what the signer has.
    fn renew_key(&self) {
        self.signer.set_key(new_key().as_deref());
        if let Some(EndsWriter { ended, voids_all, last, .. }) = &self.writer {
            voids_all.store(*last, Ordering::Relaxed);
            // Wakes the thread; where the queue is full, it comes to the mark by itself.
            ended.try_send((*last, String::new())).ok();
        }
    }

    /// Waits until all is written.
    pub(super) fn close(self) {
        if let Some(EndsWriter { ended, thread, .. }) = self.writer {
            drop(ended);
            thread.join().ok();
        }
    }
}

/// Writes down which sessions have ended, or that all ids are void; an empty name is none.
fn write(
    state: &UserState,
    signer: &SessionSigner,
    ids: Vec<String>,
    is_void: bool,
) -> Result<(), UserStateError> {
    let is_new = state.change(|file: &mut SessionFile| {
        forget_expired(&mut file.ended);
        let now = unix_now();
        file.ended.extend(ids.into_iter().filter(|id| !id.is_empty()).map(|id| (id, now)));
        if is_void || file.ended.len() > ENDED_SESSIONS_MAX {
            // Without a key the next gateway makes one.
            *file = SessionFile { key: new_key().unwrap_or_default(), ended: BTreeMap::new() };
            signer.set_key(Some(&file.key));
        }
    });
    is_new.map(drop)
}

/// The name of a session in the text of its id.
fn name_of(text: &str) -> &str {
    text.split('.').next().unwrap_or(text)
}

fn forget_expired(ended: &mut BTreeMap<String, u64>) {
    let now = unix_now();
    ended.retain(|_, at| now.saturating_sub(*at) < SESSION_RESUMABLE_FOR.as_secs());
}

/// What binds an id to the token that it was issued for, without saying that token.
fn binding(key: &hmac::Key, authorization: Option<&str>) -> String {
    let token = authorization.and_then(|value| value.split_ascii_whitespace().nth(1));
    let text = format!("token {}", token.unwrap_or_default());
    hex(&hmac::sign(key, text.as_bytes()).as_ref()[..16])
}

fn hmac_key(key: &str) -> Option<hmac::Key> {
    let bytes = unhex(key).filter(|bytes| bytes.len() == 32)?;
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// A new key; none where the system has no random bytes.
fn new_key() -> Option<String> {
    os::random_bytes::<32>().ok().map(|bytes| hex(&bytes))
}

fn unix_now() -> u64 {
    now().unix_seconds() as u64
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && text.len().is_multiple_of(2);
    is_hex.then(|| (0..text.len()).step_by(2).map(digits).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    const LINE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

    fn open(dir: &TempDir) -> EndedSessions {
        let state = UserState::find(Some(&dir.join("")), None).unwrap();
        let (ended, problem) = EndedSessions::open(Some(state), None);
        assert_eq!(problem, None);
        ended
    }

    #[test]
    fn an_id_is_of_one_token_and_outlives_the_gateway_until_it_has_ended() {
        let dir = TempDir::new();
        let first = open(&dir);
        let id = first.signer().sign(SessionId([1; 16]), LINE, Some("Bearer a"));
        assert!(id.len() <= 1_024 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        first.close();
        let mut second = open(&dir);
        let signer = second.signer();
        assert!(signer.verify(&id, Some("Bearer a")).is_some());
        assert_eq!(signer.verify(&id, Some("Bearer b")), None);
        assert_eq!(signer.verify(&id, None), None);
        let name = name_of(&id).to_owned();
        assert_eq!(signer.verify(&name, Some("Bearer a")), None, "a name alone is no signature");
        let other = id.replacen(&name, &SessionId([2; 16]).to_string(), 1);
        assert_eq!(signer.verify(&other, Some("Bearer a")), None);
        assert!(!second.contains(&id));
        second.note(SessionId([1; 16]));
        assert!(second.contains(&id));
        second.close();
        let third = open(&dir);
        assert!(third.contains(&id), "it stays ended");
        third.close();
    }

    #[tokio::test]
    async fn an_end_is_waited_for_until_it_is_stored() {
        let dir = TempDir::new();
        let mut ended = open(&dir);
        let state = UserState::find(Some(&dir.join("")), None).unwrap();
        for number in 1..=9 {
            let session = SessionId([number; 16]);
            ended.note(session).unwrap().stored().await;
            let stored: SessionFile = state.read().unwrap();
            assert!(stored.ended.contains_key(&session.to_string()));
        }
        ended.close();
        let (mut without, _) = EndedSessions::open(None, None);
        assert!(without.note(SessionId([1; 16])).is_none(), "there is nothing to wait for");
    }

    #[tokio::test]
    async fn a_slow_disk_is_not_waited_for_for_ever() {
        let (progress, written) = watch::channel(6);
        let late = Arc::new(LateEnds { log: None, is_told: AtomicBool::new(false) });
        let end = StoredEnd { number: 7, written, late: Arc::clone(&late) };
        end.clone().stored().await;
        assert!(late.is_told.load(Ordering::Relaxed));
        progress.send_replace(8);
        end.stored().await;
        assert!(!late.is_told.load(Ordering::Relaxed), "it is told again the next time");
    }

    #[test]
    fn more_ends_than_are_kept_void_all_ids() {
        let dir = TempDir::new();
        let mut ended = open(&dir);
        let id = ended.signer().sign(SessionId([9; 16]), LINE, None);
        for number in 0..=ENDED_SESSIONS_MAX {
            ended.note(SessionId((number as u128 + 10).to_be_bytes()));
        }
        assert_eq!(ended.signer().verify(&id, None), None);
        ended.close();
        let again = open(&dir);
        assert_eq!(again.signer().verify(&id, None), None);
        again.close();
    }

    #[test]
    fn a_file_of_version_1_is_read_and_a_newer_one_is_left_alone() {
        let dir = TempDir::new();
        let state = UserState::find(Some(&dir.join("")), None).unwrap();
        state.prepare().unwrap();
        let file = state.path(SessionFile::NAME);
        let fixture = include_str!("../../../../tests/compat/sessions-1.json");
        std::fs::write(&file, fixture).unwrap();
        let ended = open(&dir);
        assert!(ended.contains("00112233445566778899aabbccddeeff.claim.signature"));
        let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let id = SessionSigner::new(Some(key)).sign(SessionId([1; 16]), LINE, None);
        assert!(ended.signer().verify(&id, None).is_some());
        ended.close();
        let newer = fixture.replace("\"version\": 1", "\"version\": 2");
        std::fs::write(&file, &newer).unwrap();
        let (ended, problem) = EndedSessions::open(Some(state), None);
        assert!(problem.is_some_and(|why| why.contains("version 2")));
        assert_eq!(ended.signer().verify(&id, None), None);
        ended.close();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), newer);
    }

    #[test]
    fn without_a_file_ids_are_good_for_this_process() {
        let (ended, problem) = EndedSessions::open(None, None);
        assert_eq!(problem, None);
        let id = ended.signer().sign(SessionId([1; 16]), LINE, None);
        assert!(ended.signer().verify(&id, None).is_some());
        let (other, _) = EndedSessions::open(None, None);
        assert_eq!(other.signer().verify(&id, None), None);
        ended.close();
        other.close();
        // Without a key, too, nobody is let in by a key that is known.
        for key in [None, Some(""), Some("00")] {
            let signer = SessionSigner::new(key);
            let id = signer.sign(SessionId([1; 16]), LINE, None);
            assert_eq!(id, SessionId([1; 16]).to_string(), "{key:?}");
        }
    }
}

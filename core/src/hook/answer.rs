//! Decides what the response of a webhook means: delivered, retry, or failed.

use std::time::Duration;

use super::DeliveryFailure;
use crate::audit::redact::excerpt;

impl DeliveryFailure {
    /// Whether a webhook took what it was sent. `retry_after` is the header of that name.
    pub fn of_answer(status: u16, retry_after: Option<&str>, body: &[u8]) -> Result<(), Self> {
        let again = match status {
            200..=299 => return Ok(()),
            // Too early, too much, or a server in trouble: later it may be another answer.
            408 | 425 | 429 | 500.. => true,
            _ => false,
        };
        let advice = match status {
            300..=399 => "; redirects are not followed, so give the URL that it leads to",
            401 | 403 => "; the URL or its headers lack what it asks for",
            404 | 410 => "; there is no such webhook",
            _ => "",
        };
        let said = excerpt(body);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let seconds = retry_after.and_then(|text| text.trim().parse::<u64>().ok());
        let after = seconds.map(Duration::from_secs);
        Err(Self { why: format!("it answered with {status}{advice}{said}"), again, after })
    }
}

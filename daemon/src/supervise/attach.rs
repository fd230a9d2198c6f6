//! How the pipes of an instance are connected.

use afresh_core::id::{Generation, ServiceId};

use super::{Instance, Supervise};
use crate::definition::Talker;
use crate::os::PipeWriter;
use crate::pipe::{Flow, Pumps};
use crate::process::Command;

impl Supervise {
    /// Starts the pumps of an instance.
    pub(super) async fn attach(
        &mut self,
        service: ServiceId,
        generation: Generation,
        stdin: PipeWriter,
        [stdout, stderr]: [Flow; 2],
        command: Option<Command>,
    ) {
        let Some(kept) = self.services.get_mut(&service) else {
            return;
        };
        let earlier = std::mem::take(&mut kept.lingering);
        if earlier.is_empty() {
            kept.lingering_count = 0;
        }
        let [out_taps, err_taps] = kept.taps(generation);
        let mut pumped = vec![(stderr, self.around.stderr.clone(), err_taps)];
        let form = &kept.definition.form;
        let (pumps, stdin) = match &self.around.talkers {
            Some(talkers) => {
                let pumps = Pumps::start(pumped, form, earlier);
                let stdout = stdout.pipe;
                let talker = Talker { generation, stdin, stdout, gone: pumps.gone() };
                // Whoever talks lives as long as the loop.
                talkers.send(talker).await.ok();
                (pumps, None)
            }
            None => {
                pumped.push((stdout, self.around.stdout.clone(), out_taps));
                let stdin = match &self.around.stdin {
                    // The feeder lives as long as the loop.
                    Some(feeder) => feeder.send(Some(stdin)).await.err().and_then(|lost| lost.0),
                    None => None,
                };
                (Pumps::start(pumped, form, earlier), stdin)
            }
        };
        kept.instances.insert(generation, Instance { pid: 0, command, pumps, _stdin: stdin });
    }
}

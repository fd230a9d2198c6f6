//! Owns the TLS configuration of the client, loaded with the first use: the certificates of a system take memory. Driven
//! by [`HttpClient`](super::HttpClient). Never accepts a certificate that the system does not trust.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::limits::CERTIFICATES_BYTES_MAX;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::os;

/// Where systems keep the certificates that they trust, as one file: Debian and Arch, Fedora and Red
/// Hat, openSUSE, and last macOS, Alpine and the BSDs.
const CERTIFICATE_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why there is no secure connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// There is no root certificate.
    #[error("no root certificates were found; name a file of them in `SSL_CERT_FILE`")]
    NoCertificates,
    /// The file that was named.
    #[error("cannot read the root certificates in `{path}`")]
    Certificates {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The cryptography does not work as it is.
    #[error("cannot set up TLS")]
    SetUp(#[source] rustls::Error),
    /// What cannot be in a certificate.
    #[error("the host has no name that can be checked")]
    Name(#[source] InvalidDnsNameError),
    /// They are not who they say, or speak something else.
    #[error("the handshake failed")]
    Handshake(#[source] io::Error),
}

#[derive(Debug)]
pub(super) struct Tls {
    pub(super) certificates: Option<PathBuf>,
    pub(super) config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    pub(super) async fn secure(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(TlsError::Name)?;
        let config = self.config.get_or_try_init(|| async {
            let named = self.certificates.clone();
            // Some milliseconds of reading, which must not block the loop.
            let made = tokio::task::spawn_blocking(|| configure(named)).await;
            made.unwrap_or_else(|error| {
                Err(TlsError::SetUp(rustls::Error::General(error.to_string())))
            })
        });
        let connector = TlsConnector::from(Arc::clone(config.await?));
        connector.connect(name, stream).await.map_err(TlsError::Handshake)
    }
}

fn configure(named: Option<PathBuf>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::SetUp)?
        .with_root_certificates(roots(named)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The certificates in the file that was named, or in the first of the system's that there is.
fn roots(named: Option<PathBuf>) -> Result<RootCertStore, TlsError> {
    let is_named = named.is_some();
    let places = named.map_or_else(|| CERTIFICATE_FILES.map(PathBuf::from).to_vec(), |it| vec![it]);
    let mut store = RootCertStore::empty();
    for path in places {
        let mut pem = Vec::new();
        let read = os::open_to_read(&path)
            .and_then(|file| file.take(CERTIFICATES_BYTES_MAX).read_to_end(&mut pem));
        match read {
            Ok(_) => {}
            Err(source) if is_named => return Err(TlsError::Certificates { path, source }),
            Err(_) => continue,
        }
        // What is no certificate that we understand is trusted by others.
        let found = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
        store.add_parsable_certificates(found);
        if !store.is_empty() {
            return Ok(store);
        }
    }
    Err(TlsError::NoCertificates)
}

//! Encrypted connections: whom to trust.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use towpath_core::store::StoreError;

use super::error::trouble;
use crate::options::Tls;

/// Reads once whom to trust.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, StoreError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| trouble(format!("TLS cannot be set up: {error}")))?;
    let config = match tls.insecure {
        true => builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustsAnybody(provider))).with_no_client_auth(),
        false => builder.with_root_certificates(authorities(tls.ca_file.as_deref())?).with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(file: Option<&str>) -> Result<RootCertStore, StoreError> {
    let mut store = RootCertStore::empty();
    match file {
        Some(file) => {
            let unreadable = |why: String| trouble(format!("tls_ca: '{file}' is no file with certificates in PEM form ({why})"));
            let found = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
            if store.is_empty() {
                return Err(unreadable("there is none in it".to_owned()));
            }
        }
        // One certificate of the machine that cannot be read is no reason to trust none of the others.
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(trouble(
                    "this machine trusts no authority: name yours with ?tls_ca=FILE, or install ca-certificates".to_owned(),
                ));
            }
        }
    }
    Ok(store)
}

/// For tests: whoever answers is trusted.
#[derive(Debug)]
struct TrustsAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! Keys and certificates of one control plane: an authority that signs its servers and its users, and the key that signs service account
//! tokens. They are generated for each control plane; the repository contains no secrets.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::Error;

/// Names of the servers: they listen on loopback. Pods of real nodes use the first address of Services, and that of the bridge between the
/// machines.
const NAMES: [&str; 4] = ["127.0.0.1", "localhost", "10.96.0.1", "10.88.0.1"];

/// The folder of the files, and the authority itself for later users.
pub(crate) struct Pki {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
    admin_token: String,
}

impl Pki {
    pub(crate) fn create(folder: PathBuf) -> Result<Self, Error> {
        let made = |what| move |source| Error::Certificate { what, source };
        let secret = KeyPair::generate().map_err(made("token of the administrator"))?.serialize_der();
        let admin_token = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let pki = Self { folder, authority: authority().map_err(made("certificate authority"))?, admin_token };
        write(&pki.admin_token_file(), &format!("{},admin,admin,system:masters\n", pki.admin_token))?;
        write(&pki.authority_file(), &pki.authority.pem())?;

        let (certificate, key) = pki.server().map_err(made("server certificate"))?;
        write(&pki.server_certificate_file(), &certificate)?;
        write(&pki.server_key_file(), &key)?;

        let tokens = KeyPair::generate().map_err(made("service account key"))?;
        write(&pki.token_key_file(), &tokens.serialize_pem())?;
        write(&pki.token_public_key_file(), &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// The administrator's token. The API server verifies a client certificate again for each request, which is a tenth of its work in
    /// these suites.
    pub(crate) fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// For `--token-auth-file`.
    pub(crate) fn admin_token_file(&self) -> PathBuf {
        self.folder.join("admin.csv")
    }

    /// The certificate authority that servers and clients trust.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    pub(crate) fn server_certificate_file(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    pub(crate) fn server_key_file(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// The key that signs service account tokens.
    pub(crate) fn token_key_file(&self) -> PathBuf {
        self.folder.join("tokens.key")
    }

    pub(crate) fn token_public_key_file(&self) -> PathBuf {
        self.folder.join("tokens.pub")
    }

    /// A certificate and key for user `name` in `groups`.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> Result<(String, String), Error> {
        let mut params = CertificateParams::default();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, name);
        // rcgen keeps one value for each name type. A second group needs the same type as a custom OID.
        let organization = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        if groups.len() > organization.len() {
            return Err(Error::Groups(groups.len()));
        }
        for (kind, group) in organization.into_iter().zip(groups) {
            subject.push(kind, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params).map_err(|source| Error::Certificate { what: "user certificate", source })
    }

    /// One certificate for all servers.
    fn server(&self) -> Result<(String, String), rcgen::Error> {
        let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
        params.distinguished_name.push(DnType::CommonName, "pod-safety test server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.authority)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "pod-safety test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(Error::file("write", path))
}

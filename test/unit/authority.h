/* authority.h: certificates that are made for a test. */
#pragma once

#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstring>
#include <string>

/* A self-signed certificate for an address, and a server context with it. */
struct Authority {
  explicit Authority(const char *address) : key(EVP_EC_gen("P-256")), certificate(X509_new()) {
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_NAME *name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char *>("peer"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    std::string subject = std::string("IP:") + address;
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, subject.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    X509_set_pubkey(certificate, key);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    context = SSL_CTX_new(TLS_server_method());
    EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  }
  ~Authority() {
    SSL_CTX_free(context);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  std::string pem() const {
    return written([&](BIO *bio) { PEM_write_bio_X509(bio, certificate); });
  }
  /* Encrypted if there is a password. */
  std::string key_pem(const char *password = nullptr) const {
    return written([&](BIO *bio) {
      PEM_write_bio_PKCS8PrivateKey(bio, key, password ? EVP_aes_256_cbc() : nullptr, password,
                                    password ? static_cast<int>(strlen(password)) : 0, nullptr, nullptr);
    });
  }
  template <class Write> static std::string written(Write write) {
    BIO *bio = BIO_new(BIO_s_mem());
    write(bio);
    char *data;
    long size = BIO_get_mem_data(bio, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  EVP_PKEY *key;
  X509 *certificate;
  SSL_CTX *context;
};

#!/bin/sh
# Writes pki/: certificates and keys of every form that kubeconfigs hold, for tests alone. They are valid from 2020 to 2200.
set -eu
cd "$(dirname "$0")/pki"
rm -f ./*
until=22000101000000Z
ec() { openssl ecparam -name "$2" -genkey -noout -out "$1.sec1.key" && openssl pkcs8 -topk8 -nocrypt -in "$1.sec1.key" -out "$1.key"; }
issue() { # NAME ISSUER EXTENSIONS; the name is its own issuer: self-signed; no extensions: X.509 version 1
    printf '%b' "$3" >"$1.ext"
    : >index.txt
    printf '[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=y\nunique_subject=no\n[y]\ncommonName=supplied\n' >ca.conf
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    signer="-cert $2.crt -keyfile $2.key"
    [ "$1" = "$2" ] && signer="-selfsign -keyfile $1.key"
    extensions="-extfile $1.ext"
    [ -z "$3" ] && extensions=
    # shellcheck disable=SC2086 # a list of flags
    openssl ca -batch -notext -config ca.conf $signer $extensions -startdate 20200101000000Z -enddate "$until" -in "$1.csr" -out "$1.crt" 2>/dev/null
}
authority='basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n'
client='extendedKeyUsage=clientAuth\n'
server='basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost,DNS:api.test\n'

ec ca prime256v1 && issue ca ca "$authority"
ec other-ca prime256v1 && issue other-ca other-ca "$authority"
ec p521-ca secp521r1 && issue p521-ca p521-ca "$authority"
ec server prime256v1 && issue server ca "$server"
ec server-of-p521 prime256v1 && issue server-of-p521 p521-ca "$server"
ec elsewhere prime256v1 && issue elsewhere ca 'subjectAltName=DNS:elsewhere.test\n'
ec self prime256v1 && issue self self 'basicConstraints=CA:TRUE\nsubjectAltName=IP:127.0.0.1\n'
ec server-ca prime256v1 && issue server-ca ca 'basicConstraints=CA:TRUE\nsubjectAltName=IP:127.0.0.1\n'
ec p256 prime256v1 && issue p256 ca "$client"
{ openssl ecparam -name prime256v1 && cat p256.sec1.key; } >p256.parameters.key
ec p384 secp384r1 && issue p384 ca "$client"
ec p521 secp521r1 && issue p521 ca "$client"
openssl genpkey -algorithm ed25519 -out ed25519.key && issue ed25519 ca "$client"
openssl genpkey -quiet -algorithm rsa -pkeyopt rsa_keygen_bits:2048 -out rsa.key && issue rsa ca "$client"
openssl rsa -in rsa.key -traditional -out rsa.pkcs1.key
openssl rsa -in rsa.key -traditional -aes128 -passout pass:x -out rsa.encrypted.key
openssl genpkey -quiet -algorithm rsa -pkeyopt rsa_keygen_bits:1024 -out rsa1024.key && issue rsa1024 ca "$client"
ec v1 prime256v1 && issue v1 ca ''
ec middle prime256v1 && issue middle ca "$authority"
ec leaf prime256v1 && issue leaf middle "$client"
cat middle.crt >>leaf.crt
until=20200102000000Z
ec expired prime256v1 && issue expired ca "$server"
rm -f ./*.csr ./*.ext ./*.pem ./*.conf ./index.txt*
# What no test reads.
for key in *.sec1.key; do [ "$key" = p256.sec1.key ] || rm -f "$key"; done

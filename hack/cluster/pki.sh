#!/usr/bin/env bash
# pki.sh - functions: the CA and the certificates (EC P-256, openssl), and kubeconfigs
ca() { # ca NAME CN
  [ -s "$PKI/$1.crt" ] && return
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$2" \
    -addext "keyUsage=critical,digitalSignature,keyCertSign,cRLSign" -keyout "$PKI/$1.key" -out "$PKI/$1.crt" 2>/dev/null
}
cert() { # cert NAME CA SUBJECT [SAN]
  [ -s "$PKI/$1.crt" ] && return
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$3" -keyout "$PKI/$1.key" -out "$PKI/$1.csr" 2>/dev/null
  { echo "keyUsage=critical,digitalSignature"; echo "extendedKeyUsage=serverAuth,clientAuth"; echo "basicConstraints=CA:FALSE"; [ -z "${4:-}" ] || echo "subjectAltName=$4"; } > "$PKI/$1.ext"
  openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/$2.crt" -CAkey "$PKI/$2.key" -CAcreateserial -days 3650 -extfile "$PKI/$1.ext" -out "$PKI/$1.crt" 2>/dev/null
  rm -f "$PKI/$1.csr" "$PKI/$1.ext"
}
kubeconfig() { # kubeconfig FILE CERTNAME SERVER
  local b="base64 -w0"
  cat > "$1" <<X
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "$3", certificate-authority-data: $($b "$PKI/ca.crt")}}]
users: [{name: u, user: {client-certificate-data: $($b "$PKI/$2.crt"), client-key-data: $($b "$PKI/$2.key")}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
X
  chmod 600 "$1"
}
make_pki() {
  mkdir -p "$PKI" "$KC"; chmod 700 "$PKI"
  ca ca kubernetes; ca front-ca front-proxy
  [ -s "$PKI/sa.key" ] || { openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/sa.key"; openssl ec -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null; }
  cert apiserver ca /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$SVC.0.1,IP:$NET.1"
  cert etcd ca /CN=etcd "DNS:localhost,IP:127.0.0.1"
  cert etcd-client ca /CN=kube-apiserver-etcd-client
  cert kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client
  cert front-client front-ca /CN=front-proxy-client
  cert admin ca /O=system:masters/CN=admin
  cert kcm ca /CN=system:kube-controller-manager "DNS:localhost,IP:127.0.0.1"
  cert scheduler ca /CN=system:kube-scheduler "DNS:localhost,IP:127.0.0.1"
  cert proxy ca /CN=system:kube-proxy
  cert provisioner ca /CN=local-provisioner
  cert coredns ca /CN=system:coredns
  for u in admin kcm scheduler provisioner coredns proxy; do kubeconfig "$KC/$u" "$u" "$API"; done
}

tidemark envtest-assets ./bin/tidemark
./bin/tidemark/kube-apiserver --help >help
grep -q -- --etcd-servers help

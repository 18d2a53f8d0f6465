# needs curl
tidemark serve --in-memory --control=control.sock
curl --unix-socket control.sock http://control/control/v1/worlds/root/faults \
  -d '{"fault": "conflict", "verbs": ["update"], "resource": "pods", "times": 3}'
curl --unix-socket control.sock http://control/control/v1/worlds/root/settle -d '{}'

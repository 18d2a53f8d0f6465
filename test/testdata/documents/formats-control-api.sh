# needs curl
tidemark serve --in-memory --control=control.sock
curl --unix-socket control.sock http://control/control/v1/worlds

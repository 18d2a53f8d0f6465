package encryption

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/util"
)

// reconnect bounds the pause between two attempts to reach a plugin.
const reconnect = 3 * time.Second

// dial returns a client for the plugin at an endpoint, unix:///path or unix:///@name. It connects
// when it is first used. The returned function closes the connection.
func dial(endpoint string) (kmsapi.KeyManagementServiceClient, func() error, error) {
	address, err := util.ParseEndpoint(endpoint)
	if err != nil {
		return nil, nil, err
	}
	pause := backoff.DefaultConfig
	pause.BaseDelay, pause.MaxDelay = reconnect/30, reconnect
	connection, err := grpc.NewClient("passthrough:///kms",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a local socket
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), // until the call's deadline
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}))
	if err != nil {
		return nil, nil, err
	}
	return kmsapi.NewKeyManagementServiceClient(connection), connection.Close, nil
}

// The life of one connector, by the gRPC API: create, wait, watch, pause, resume, stop, offsets, delete.
//
//	go run . unix:/path/to/state/grpc.sock in.txt orders
//
// Each step prints one line. The exit code is 1 at the first step that fails.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "example.com/headgate/lifecycle/headgatev1"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: lifecycle ADDRESS FILE NAME, for example unix:state/grpc.sock in.txt orders")
	}
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check("connect", err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	listServices(ctx, connection)
	live(ctx, pb.NewConnectorServiceClient(connection), os.Args[2], os.Args[3])
}

func live(ctx context.Context, client pb.ConnectorServiceClient, file, name string) {
	config := map[string]string{"connector.class": "FileStreamSource", "file": file, "topic": name}
	_, err := client.CreateConnector(ctx, &pb.CreateConnectorRequest{Name: name, Config: config})
	check("create", err)
	fmt.Println("created", name)
	_, err = client.CreateConnector(ctx, &pb.CreateConnectorRequest{Name: name, Config: config})
	if status.Code(err) != codes.AlreadyExists {
		log.Fatalf("create again: expected ALREADY_EXISTS, got %v", err)
	}
	wait(ctx, client, name, pb.State_STATE_RUNNING)

	filter := &pb.ConnectorFilter{Names: []string{name}}
	watch, err := client.WatchConnectors(ctx, &pb.WatchConnectorsRequest{Filter: filter})
	check("watch", err)
	seen(watch, func(each *pb.WatchConnectorsResponse) bool { return each.Synced })
	fmt.Println("watching", name)

	_, err = client.PauseConnector(ctx, &pb.PauseConnectorRequest{Name: name})
	check("pause", err)
	seen(watch, shows(pb.State_STATE_PAUSED))
	fmt.Println("watch saw PAUSED")
	_, err = client.ResumeConnector(ctx, &pb.ResumeConnectorRequest{Name: name})
	check("resume", err)
	seen(watch, shows(pb.State_STATE_RUNNING))
	fmt.Println("watch saw RUNNING")

	offsets := committed(ctx, client, name)
	fmt.Println("offset", offsets[0].OffsetJson)
	_, err = client.StopConnector(ctx, &pb.StopConnectorRequest{Name: name})
	check("stop", err)
	wait(ctx, client, name, pb.State_STATE_STOPPED)
	offsets[0].OffsetJson = `{"position": 0}`
	_, err = client.AlterOffsets(ctx, &pb.AlterOffsetsRequest{Name: name, Offsets: offsets})
	check("alter offsets", err)
	fmt.Println("altered to", committed(ctx, client, name)[0].OffsetJson)
	_, err = client.ResetOffsets(ctx, &pb.ResetOffsetsRequest{Name: name})
	check("reset offsets", err)
	read, err := client.ReadOffsets(ctx, &pb.ReadOffsetsRequest{Name: name})
	check("read offsets", err)
	fmt.Println("offsets after the reset:", len(read.Offsets))

	_, err = client.DeleteConnector(ctx, &pb.DeleteConnectorRequest{Name: name})
	check("delete", err)
	seen(watch, func(each *pb.WatchConnectorsResponse) bool { return len(each.Removed) == 1 })
	fmt.Println("watch saw the deletion")
	_, err = client.GetConnector(ctx, &pb.GetConnectorRequest{Name: name})
	if status.Code(err) != codes.NotFound {
		log.Fatalf("get after delete: expected NOT_FOUND, got %v", err)
	}
	fmt.Println("gone", name)
}

// seen reads the watch until a response is as wanted.
func seen(watch grpc.ServerStreamingClient[pb.WatchConnectorsResponse], wanted func(*pb.WatchConnectorsResponse) bool) {
	for {
		response, err := watch.Recv()
		check("watch", err)
		if wanted(response) {
			return
		}
	}
}

// shows is true for a response in which a connector and its tasks have the state.
func shows(state pb.State) func(*pb.WatchConnectorsResponse) bool {
	return func(response *pb.WatchConnectorsResponse) bool {
		for _, connector := range response.Connectors {
			right := connector.GetStatus().GetState() == state && len(connector.Tasks) > 0
			for _, task := range connector.Tasks {
				right = right && task.GetStatus().GetState() == state
			}
			if right {
				return true
			}
		}
		return false
	}
}

func wait(ctx context.Context, client pb.ConnectorServiceClient, name string, state pb.State) {
	request := &pb.WaitConnectorRequest{Name: name, Condition: &pb.WaitConnectorRequest_State{State: state}}
	_, err := client.WaitConnector(ctx, request)
	check("wait", err)
	fmt.Println("waited for", strings.TrimPrefix(state.String(), "STATE_"))
}

// committed asks until the connector has committed offsets.
func committed(ctx context.Context, client pb.ConnectorServiceClient, name string) []*pb.ConnectorOffset {
	for {
		read, err := client.ReadOffsets(ctx, &pb.ReadOffsetsRequest{Name: name})
		check("read offsets", err)
		if len(read.Offsets) > 0 {
			return read.Offsets
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// listServices asks the server by reflection which services it has.
func listServices(ctx context.Context, connection *grpc.ClientConn) {
	stream, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
	check("reflection", err)
	check("reflection", stream.Send(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_ListServices{},
	}))
	response, err := stream.Recv()
	check("reflection", err)
	names := []string{}
	for _, each := range response.GetListServicesResponse().GetService() {
		names = append(names, each.Name)
	}
	sort.Strings(names)
	fmt.Println("services", strings.Join(names, " "))
	check("reflection", stream.CloseSend())
}

func check(step string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", step, err)
	}
}

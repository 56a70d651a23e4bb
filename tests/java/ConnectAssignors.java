/*
 * Drives the assignors and the protocol bytes of connect-runtime for tests that compare ours with
 * them. A question is a line of JSON on standard input, its answer a line on standard output.
 * Started by tests/support/java/assignors.py, which says what may be asked.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.utils.ExponentialBackoff;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.distributed.ConnectAssignor;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocolCompatibility;
import org.apache.kafka.connect.runtime.distributed.EagerAssignor;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeAssignor;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.util.ConnectorTaskId;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;

public class ConnectAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    private final Map<String, IncrementalCooperativeAssignor> incremental = new HashMap<>();
    private final ConnectAssignor eager = new EagerAssignor(new LogContext());
    private final Coordinator coordinator = Coordinator.make();
    private final Clock clock = new Clock();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Configurator.setRootLevel(Level.ERROR);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ConnectAssignors driver = new ConnectAssignors();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private ObjectNode answer(JsonNode asked) throws Exception {
        switch (asked.get("do").asText()) {
            case "leader":
                incremental.put(
                    asked.get("leader").asText(),
                    new IncrementalCooperativeAssignor(
                        new LogContext(), clock, asked.get("delay_ms_max").asInt()));
                return JSON.createObjectNode();
            case "round":
                return round(asked);
            case "write":
                return JSON.createObjectNode().put("bytes", hex(write(asked)));
            case "read":
                return read(asked);
            case "backoff":
                return backoff(asked);
            case "walk":
                return walk(asked);
            case "version":
                return JSON.createObjectNode().put("java", Runtime.version().feature());
            default:
                throw new IllegalArgumentException(asked.toString());
        }
    }

    // -- rounds --

    private ObjectNode round(JsonNode asked) throws Exception {
        String leader = asked.get("leader").asText();
        ConnectProtocolCompatibility protocol =
            ConnectProtocolCompatibility.fromProtocol(asked.get("protocol").asText());
        clock.nowMs = asked.get("now_ms").asLong();
        coordinator.generation = asked.get("generation").asInt();
        coordinator.completed = asked.get("last_completed_generation").asInt();
        coordinator.snapshot = snapshot(asked);
        List<JoinGroupResponseMember> members = new ArrayList<>();
        for (JsonNode member : asked.get("members")) {
            members.add(new JoinGroupResponseMember()
                .setMemberId(member.get(0).asText())
                .setMetadata(HEX.parseHex(member.get(1).asText())));
        }
        boolean isEager = protocol == ConnectProtocolCompatibility.EAGER;
        ConnectAssignor assignor = isEager ? eager : incremental.get(leader);
        if (asked.path("collect_first").asBoolean()) {
            System.gc();
        }
        long began = cpuNs();
        long threadBegan = threadCpuNs();
        Map<String, ByteBuffer> done =
            assignor.performAssignment(leader, protocol, members, coordinator);
        ObjectNode answer = JSON.createObjectNode()
            .put("cpu_ns", cpuNs() - began)
            .put("thread_cpu_ns", threadCpuNs() - threadBegan);
        ObjectNode assignments = answer.putObject("assignments");
        done.forEach((member, bytes) -> assignments.put(member, hex(bytes)));
        if (!isEager) {
            answer.set("state", state(incremental.get(leader)));
        }
        return answer;
    }

    /** Of the process, with its collector and its compiler. */
    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static long threadCpuNs() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static ClusterConfigState snapshot(JsonNode asked) {
        Map<String, Integer> counts = new HashMap<>();
        Map<String, Map<String, String>> configs = new HashMap<>();
        asked.get("connectors").properties().forEach(entry -> {
            counts.put(entry.getKey(), entry.getValue().asInt());
            configs.put(entry.getKey(), Map.of());
        });
        Set<String> inconsistent = new HashSet<>(strings(asked.get("inconsistent")));
        return new ClusterConfigState(
            asked.get("offset").asLong(), null, counts, configs, Map.of(), Map.of(), Map.of(),
            Map.of(), Map.of(), Set.of(), inconsistent);
    }

    private static ObjectNode state(IncrementalCooperativeAssignor assignor) throws Exception {
        ObjectNode state = JSON.createObjectNode();
        state.put("delay", (Integer) field(assignor, "delay"));
        state.put("scheduledRebalance", (Long) field(assignor, "scheduledRebalance"));
        state.put("previousGenerationId", (Integer) field(assignor, "previousGenerationId"));
        state.put("revokedInPrevious", (Boolean) field(assignor, "revokedInPrevious"));
        state.put("numSuccessiveRevokingRebalances",
            (Integer) field(assignor, "numSuccessiveRevokingRebalances"));
        put(state, "candidateWorkersForReassignment",
            (Collection<?>) field(assignor, "candidateWorkersForReassignment"));
        put(state, "previousMembers", (Collection<?>) field(assignor, "previousMembers"));
        for (String name : List.of("previousAssignment", "previousRevocation")) {
            WorkerCoordinator.ConnectorsAndTasks work =
                (WorkerCoordinator.ConnectorsAndTasks) field(assignor, name);
            ObjectNode node = state.putObject(name);
            put(node, "connectors", work.connectors());
            put(node, "tasks", work.tasks());
        }
        return state;
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = IncrementalCooperativeAssignor.class.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static ObjectNode backoff(JsonNode asked) {
        // As the constructor of the incremental assignor makes it.
        long max = asked.get("delay_ms_max").asLong();
        ExponentialBackoff backoff = new ExponentialBackoff(max == 0 ? 0 : 1, 40, max, 0);
        ArrayNode waits = JSON.createArrayNode();
        for (JsonNode attempts : asked.get("attempts")) {
            waits.add((int) backoff.backoff(attempts.asLong()));
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.set("waits", waits);
        return answer;
    }

    // -- bytes --

    private static ByteBuffer write(JsonNode asked) {
        int version = asked.get("version").asInt();
        if (asked.get("what").asText().equals("assignment")) {
            ExtendedAssignment assignment = assignment(version, asked);
            return version == 0
                ? ConnectProtocol.serializeAssignment(assignment)
                : IncrementalCooperativeConnectProtocol.serializeAssignment(assignment, version == 2);
        }
        JsonNode current = asked.get("current");
        ExtendedWorkerState state = new ExtendedWorkerState(
            asked.get("url").asText(), asked.get("offset").asLong(),
            current.isNull() ? null : assignment(version, current));
        return version == 0
            ? ConnectProtocol.serializeMetadata(state)
            : IncrementalCooperativeConnectProtocol.serializeMetadata(state, version == 2);
    }

    private static ExtendedAssignment assignment(int version, JsonNode from) {
        return new ExtendedAssignment(
            (short) version, (short) from.get("error").asInt(), from.get("leader").asText(),
            from.get("leader_url").asText(), from.get("offset").asLong(),
            strings(from.get("connectors")), tasks(from.get("tasks")),
            strings(from.get("revoked_connectors")), tasks(from.get("revoked_tasks")),
            from.get("delay").asInt());
    }

    private static ObjectNode read(JsonNode asked) {
        ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(asked.get("bytes").asText()));
        ObjectNode answer = JSON.createObjectNode();
        try {
            if (asked.get("what").asText().equals("assignment")) {
                put(answer, IncrementalCooperativeConnectProtocol.deserializeAssignment(bytes));
            } else {
                ExtendedWorkerState state =
                    IncrementalCooperativeConnectProtocol.deserializeMetadata(bytes);
                answer.put("url", state.url()).put("offset", state.offset());
                if (state.assignment() == ExtendedAssignment.empty()) {
                    answer.putNull("current");
                } else {
                    put(answer.putObject("current"), state.assignment());
                }
            }
        } catch (RuntimeException error) {
            return JSON.createObjectNode().put("refused", error.toString());
        }
        return answer;
    }

    private static void put(ObjectNode to, ExtendedAssignment assignment) {
        to.put("error", assignment.error()).put("leader", assignment.leader());
        to.put("leader_url", assignment.leaderUrl()).put("offset", assignment.offset());
        put(to, "connectors", assignment.connectors());
        put(to, "tasks", assignment.tasks());
        put(to, "revoked_connectors", assignment.revokedConnectors());
        put(to, "revoked_tasks", assignment.revokedTasks());
        to.put("delay", assignment.delay());
    }

    // -- tables --

    /** Of the same items: a map that they were put into, a set made of them, what is left of it. */
    private static ObjectNode walk(JsonNode asked) {
        boolean areTasks = asked.get("tasks").asBoolean();
        JsonNode items = asked.get("items");
        JsonNode kept = asked.get("kept");
        List<Object> given = new ArrayList<>(areTasks ? tasks(items) : strings(items));
        Set<Object> wanted = new HashSet<>(areTasks ? tasks(kept) : strings(kept));
        Map<Object, Boolean> map = new HashMap<>();
        given.forEach(item -> map.put(item, true));
        Set<Object> made = new HashSet<>(given);
        ObjectNode answer = JSON.createObjectNode();
        put(answer, "map", map.keySet());
        put(answer, "set", made);
        made.retainAll(wanted);
        put(answer, "kept", made);
        return answer;
    }

    // -- JSON --

    private static void put(ObjectNode to, String name, Collection<?> items) {
        ArrayNode list = to.putArray(name);
        for (Object item : items) {
            if (item instanceof ConnectorTaskId) {
                ConnectorTaskId task = (ConnectorTaskId) item;
                list.addArray().add(task.connector()).add(task.task());
            } else {
                list.add((String) item);
            }
        }
    }

    private static List<String> strings(JsonNode items) {
        List<String> found = new ArrayList<>();
        items.forEach(item -> found.add(item.asText()));
        return found;
    }

    private static List<ConnectorTaskId> tasks(JsonNode items) {
        List<ConnectorTaskId> found = new ArrayList<>();
        items.forEach(item ->
            found.add(new ConnectorTaskId(item.get(0).asText(), item.get(1).asInt())));
        return found;
    }

    private static String hex(ByteBuffer bytes) {
        byte[] found = new byte[bytes.remaining()];
        bytes.duplicate().get(found);
        return HEX.formatHex(found);
    }

    // -- what an assignor asks for --

    /** The time of the round. */
    private static final class Clock implements Time {
        private long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    /** Knows the snapshot and the generations; has no group, and its constructor never runs. */
    public static final class Coordinator extends WorkerCoordinator {
        private ClusterConfigState snapshot;
        private int generation;
        private int completed;

        private Coordinator() {
            super(null, null, null, null, null, null, null, null, null, null, 0);
        }

        static Coordinator make() {
            try {
                Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
                field.setAccessible(true);
                return (Coordinator)
                    ((sun.misc.Unsafe) field.get(null)).allocateInstance(Coordinator.class);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public String memberId() {
            return "";
        }

        @Override
        public int generationId() {
            return generation;
        }

        @Override
        public int lastCompletedGenerationId() {
            return completed;
        }

        @Override
        public ClusterConfigState configSnapshot() {
            return snapshot;
        }

        @Override
        public ClusterConfigState configFreshSnapshot() {
            return snapshot;
        }

        @Override
        public void leaderState(LeaderState update) {
        }
    }
}

// YARN with two node managers and HDFS with one data node in this process, for test_yarn.py and test_state_on_hdfs.py:
// MiniYarn DIRECTORY [hdfs]
//
// With the second argument there is no YARN.
// Writes the configuration of clients to DIRECTORY/conf, and prints "ready". Ends with its standard input.

import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

public class MiniYarn {
  static final int NODES = 2;

  public static void main(String[] args) {
    try {
      run(args);
      System.exit(0);
    } catch (Throwable e) {
      // Threads of a started part would keep the process.
      e.printStackTrace();
      System.exit(1);
    }
  }

  static void run(String[] args) throws Exception {
    File root = new File(args[0]);
    File conf = new File(root, "conf");
    conf.mkdirs();
    Configuration hdfs = new Configuration();
    hdfs.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(root, "hdfs").getPath());
    MiniDFSCluster dfs = new MiniDFSCluster.Builder(hdfs).numDataNodes(1).build();
    dfs.waitActive();
    if (args.length > 1) {
      System.out.println("\n" + dfs.getURI());
      System.out.println("ready");
      while (System.in.read() >= 0) {}
      dfs.shutdown();
      return;
    }
    YarnConfiguration yarn = new YarnConfiguration(hdfs);
    yarn.set("fs.defaultFS", dfs.getURI().toString());
    // Containers of Python processes reserve more virtual memory than they use.
    yarn.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    yarn.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    yarn.setInt("yarn.scheduler.minimum-allocation-mb", 128);
    yarn.setInt("yarn.resourcemanager.am.max-attempts", 4);
    yarn.setInt("yarn.nodemanager.resource.memory-mb", 4096);
    yarn.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
    yarn.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99.5f);
    yarn.set("yarn.scheduler.capacity.root.queues", "default");
    yarn.set("yarn.scheduler.capacity.root.default.capacity", "100");
    yarn.setFloat("yarn.scheduler.capacity.maximum-am-resource-percent", 1.0f);
    // The logs of containers stay in the directory of the cluster.
    yarn.setInt("yarn.nodemanager.delete.debug-delay-sec", 600);
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", NODES, 1, 1);
    cluster.init(yarn);
    cluster.start();
    if (!cluster.waitForNodeManagersToConnect(60_000)) {
      throw new IllegalStateException("The node managers do not connect.");
    }
    // A class of this process.
    Configuration written = new Configuration(cluster.getConfig());
    written.set("net.topology.node.switch.mapping.impl", "org.apache.hadoop.net.ScriptBasedMapping");
    // The defaults of YARN precede core-site.xml.
    for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
      try (OutputStream out = new FileOutputStream(new File(conf, name))) {
        written.writeXml(out);
      }
    }
    System.out.println("ready");
    while (System.in.read() >= 0) {}
    cluster.stop();
    dfs.shutdown();
  }
}

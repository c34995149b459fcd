import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoublePoint;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.MatchingQueries;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.monitor.TermWeightor;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;

/**
 * Matches messages with the subscriptions of a folder by Lucene's monitor, with one thread, and prints how long it takes.
 *
 * <p>The folder has queries (a line each, tokens as in lucene.py, with tabs between them), messages (lon, lat, price, category, words) and frequencies (word,
 * number of texts). The pairs that match are written to pairs-1 and so on, by the size of batches: number of the message, number of the query.
 *
 * <p>Arguments: folder, rounds, numbers of messages in a batch.
 */
public class LuceneMonitor {
  public static void main(String[] args) throws Exception {
    Path folder = Path.of(args[0]);
    int rounds = Integer.parseInt(args[1]);
    Analyzer analyzer = new WhitespaceAnalyzer();
    TermFilteredPresearcher presearcher = new TermFilteredPresearcher(rarest(folder), List.of(), Set.of());
    try (Monitor monitor = new Monitor(analyzer, presearcher, new MonitorConfiguration())) {
      long began = System.nanoTime();
      List<MonitorQuery> some = new ArrayList<>();
      int n = 0;
      for (String line : Files.readAllLines(folder.resolve("queries"))) {
        some.add(new MonitorQuery(Integer.toString(n++), query(Arrays.asList(line.split("\t")).iterator())));
        if (some.size() == 5000) {
          monitor.register(some);
          some.clear();
        }
      }
      monitor.register(some);
      System.out.printf("register_us %f%n", (System.nanoTime() - began) / 1e3 / n);
      List<String> messages = Files.readAllLines(folder.resolve("messages"));
      for (String batch : Arrays.asList(args).subList(2, args.length)) {
        long least = Long.MAX_VALUE;
        for (int round = 0; round < rounds; round++) {
          try (PrintWriter out = new PrintWriter(folder.resolve("pairs-" + batch).toFile())) {
            least = Math.min(least, match(monitor, messages, Integer.parseInt(batch), out));
          }
        }
        System.out.printf("message_us-%s %f%n", batch, least / 1e3 / messages.size());
      }
    }
  }

  /** Prefers the rarest term of a query, as DSkype does; by itself the monitor prefers the longest one. */
  private static TermWeightor rarest(Path folder) throws Exception {
    Map<String, Integer> frequencies = new HashMap<>();
    for (String line : Files.readAllLines(folder.resolve("frequencies"))) {
      String[] parts = line.split("\t");
      frequencies.put(parts[0], Integer.parseInt(parts[1]));
    }
    return term -> 1.0 / frequencies.getOrDefault(term.text(), Integer.MAX_VALUE);
  }

  /** Returns the time of this thread, in ns; documents are made from texts before the clock runs, and pairs are written after it. */
  private static long match(Monitor monitor, List<String> messages, int batch, PrintWriter out) throws Exception {
    var clock = ManagementFactory.getThreadMXBean();
    long spent = 0;
    for (int start = 0; start < messages.size(); start += batch) {
      Document[] documents = new Document[Math.min(batch, messages.size() - start)];
      for (int i = 0; i < documents.length; i++) documents[i] = document(messages.get(start + i).split("\t", -1));
      long began = clock.getCurrentThreadCpuTime();
      MultiMatchingQueries<QueryMatch> found = null;
      MatchingQueries<QueryMatch> single = null;
      if (documents.length == 1) single = monitor.match(documents[0], QueryMatch.SIMPLE_MATCHER);
      else found = monitor.match(documents, QueryMatch.SIMPLE_MATCHER);
      spent += clock.getCurrentThreadCpuTime() - began;
      for (int i = 0; i < documents.length; i++) {
        for (QueryMatch match : single != null ? single.getMatches() : found.getMatches(i)) out.println((start + i) + "\t" + match.getQueryId());
      }
    }
    return spent;
  }

  private static Document document(String[] parts) {
    Document document = new Document();
    document.add(new DoublePoint("place", Double.parseDouble(parts[0]), Double.parseDouble(parts[1])));
    document.add(new DoublePoint("price", Double.parseDouble(parts[2])));
    document.add(new StringField("category", parts[3], Field.Store.NO));
    document.add(new TextField("text", parts[4], Field.Store.NO));
    return document;
  }

  private static Query query(Iterator<String> tokens) {
    String kind = tokens.next();
    switch (kind) {
      case "WORD":
        return new TermQuery(new Term("text", tokens.next()));
      case "VALUE":
        return new TermQuery(new Term(tokens.next(), tokens.next()));
      case "RANGE":
        return DoublePoint.newRangeQuery(tokens.next(), number(tokens), number(tokens));
      case "BOX":
        double west = number(tokens), south = number(tokens), east = number(tokens), north = number(tokens);
        return DoublePoint.newRangeQuery("place", new double[] {west, south}, new double[] {east, north});
      case "PHRASE":
        PhraseQuery.Builder phrase = new PhraseQuery.Builder().setSlop((int) number(tokens));
        for (int n = (int) number(tokens); n > 0; n--) {
          int place = (int) number(tokens);
          phrase.add(new Term("text", tokens.next()), place);
        }
        return phrase.build();
      case "ALL":
        return new MatchAllDocsQuery();
      case "BOOL":
        BooleanQuery.Builder parts = new BooleanQuery.Builder();
        for (int n = (int) number(tokens); n > 0; n--) {
          Occur occur = Occur.valueOf(tokens.next());
          parts.add(query(tokens), occur);
        }
        return parts.build();
      default:
        throw new IllegalArgumentException("expected a query, given: " + kind);
    }
  }

  private static double number(Iterator<String> tokens) {
    return Double.parseDouble(tokens.next().replace("inf", "Infinity"));
  }
}

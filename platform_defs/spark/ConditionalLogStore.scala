package tidemark

import java.io.{ByteArrayOutputStream, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.Arrays

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** Delta's log store for S3, with conditional puts.
  *
  * Delta's own looks for a commit and then writes it, so that it could overwrite a commit that another process wrote in between. Here the
  * store itself refuses to replace an object. deltalake commits in the same way, so Spark and deltalake cannot overwrite each other's
  * commits.
  */
class ConditionalLogStore(initial: Configuration) extends S3SingleDriverLogStore(initial) {

  override def write(path: Path, actions: java.util.Iterator[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf) else create(path.getFileSystem(conf), path, bytes(actions))

  private def create(store: FileSystem, path: Path, content: Array[Byte]): Unit = {
    val builder = store.createFile(path)
    builder.create()
    builder.must("fs.option.create.conditional.overwrite", true)
    val file = builder.build()
    file.write(content)
    try file.close()
    catch {
      case failed: IOException =>
        // The request was tried again after its answer was lost: then the object is the first try's.
        if (!store.exists(path)) throw failed
        if (!Arrays.equals(read(store, path), content)) throw new FileAlreadyExistsException(path.toUri.toString)
    }
  }

  private def read(store: FileSystem, path: Path): Array[Byte] = {
    val stream = store.open(path)
    try stream.readAllBytes()
    finally stream.close()
  }

  private def bytes(actions: java.util.Iterator[String]): Array[Byte] = {
    val content = new ByteArrayOutputStream
    while (actions.hasNext) content.write(s"${actions.next()}\n".getBytes(UTF_8))
    content.toByteArray
  }
}

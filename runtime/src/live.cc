#include "heddle/live.h"

#include "heddle/artifact.h"
#include "heddle/buffer.h"
#include "heddle/model.h"
#include "heddle/program.h"

namespace heddle {

LiveObjects live_objects() {
  return {Artifact::live(), Storage::live(),      Program::live(),
          Model::live(),    Model::live_arenas(), Event::live()};
}

}  // namespace heddle
